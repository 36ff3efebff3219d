// The Python type of gradgate/torch_reducer.hpp. gradgate/adapters/plain.py is its user.

#ifndef GRADGATE_SHIM_TORCH_REDUCER_H_
#define GRADGATE_SHIM_TORCH_REDUCER_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace gradgate::tap {

// Adds the type Reducer to the module. False: a Python exception is set. With the interpreter's lock; once.
bool AddReducer(PyObject* module);

}  // namespace gradgate::tap

#endif  // GRADGATE_SHIM_TORCH_REDUCER_H_
