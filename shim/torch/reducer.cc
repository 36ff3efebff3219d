#include "shim/torch/reducer.h"

#include <torch/csrc/autograd/python_variable.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>
#include <vector>

#include "gradgate/torch_reducer.hpp"

namespace gradgate::tap {
namespace {

using gradgate::torch::Reducer;
using gradgate::torch::ReducerOptions;

struct ReducerObject {
  PyObject_HEAD std::shared_ptr<Reducer>* reducer;
};

Reducer& In(PyObject* self) { return **reinterpret_cast<ReducerObject*>(self)->reducer; }

// Runs `call` without the interpreter's lock; false: it threw, and a Python exception is set.
template <typename F>
bool WithoutLock(F call) {
  std::string failure;
  Py_BEGIN_ALLOW_THREADS;
  try {
    call();
  } catch (const std::exception& error) {
    failure = gradgate::torch::internal::TextOf(error);
    if (failure.empty()) failure = "unknown";
  }
  Py_END_ALLOW_THREADS;
  if (!failure.empty()) PyErr_SetString(PyExc_RuntimeError, failure.c_str());
  return failure.empty();
}

template <typename F>
PyObject* NoneAfter(F call) {
  if (!WithoutLock(call)) return nullptr;
  Py_RETURN_NONE;
}

std::optional<at::ScalarType> Wire(const char* name) {
  const std::string wire = name == nullptr ? "" : name;
  if (wire == "bf16") return at::kBFloat16;
  if (wire == "fp16") return at::kHalf;
  return std::nullopt;
}

// Reducer(parameters, names, group_name, deadline_s, overlap)
PyObject* New(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* tensors = nullptr;
  PyObject* strings = nullptr;
  const char* group = nullptr;
  double deadline_s = 0;
  int overlap = 0;
  if (!PyArg_ParseTuple(args, "O!O!sdp", &PyList_Type, &tensors, &PyList_Type, &strings, &group, &deadline_s, &overlap)) {
    return nullptr;
  }
  std::vector<at::Tensor> parameters;
  std::vector<std::string> names;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tensors); ++i) {
    PyObject* const tensor = PyList_GET_ITEM(tensors, i);
    if (PyObject_IsInstance(tensor, THPVariableClass) != 1) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "parameters: a list of tensors");
      return nullptr;
    }
    parameters.push_back(THPVariable_Unpack(tensor));
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(strings); ++i) {
    const char* const name = PyUnicode_AsUTF8(PyList_GET_ITEM(strings, i));
    if (name == nullptr) return nullptr;
    names.emplace_back(name);
  }
  ReducerOptions options;
  options.deadline = std::chrono::milliseconds(static_cast<int64_t>(deadline_s * 1e3));
  options.overlap = overlap != 0;
  const std::string group_name = group;
  std::shared_ptr<Reducer> made;
  if (!WithoutLock([&] {
        made = std::make_shared<Reducer>(std::move(parameters), std::move(names), c10d::resolve_process_group(group_name),
                                         options);
      })) {
    return nullptr;
  }
  PyObject* const self = type->tp_alloc(type, 0);
  if (self != nullptr) reinterpret_cast<ReducerObject*>(self)->reducer = new std::shared_ptr<Reducer>(std::move(made));
  return self;
}

void Free(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<ReducerObject*>(self)->reducer;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* Configure(PyObject* self, PyObject* args) {
  unsigned long long bucket_bytes = 0;
  const char* wire = nullptr;
  if (!PyArg_ParseTuple(args, "Kz", &bucket_bytes, &wire)) return nullptr;
  return NoneAfter([&] { In(self).configure(bucket_bytes, Wire(wire)); });
}

PyObject* ArmReducer(PyObject* self, PyObject*) {
  return NoneAfter([&] { In(self).arm(); });
}
PyObject* Disarm(PyObject* self, PyObject*) {
  return NoneAfter([&] { In(self).disarm(); });
}
PyObject* Finish(PyObject* self, PyObject*) {
  return NoneAfter([&] { In(self).finish(); });
}
PyObject* Discard(PyObject* self, PyObject*) {
  return NoneAfter([&] { In(self).discard(); });
}

// (complete, launched, began, [elements of each bucket], sent again)
PyObject* State(PyObject* self, PyObject*) {
  Reducer::State state;
  if (!WithoutLock([&] { state = In(self).state(); })) return nullptr;
  PyObject* const sizes = PyList_New(static_cast<Py_ssize_t>(state.bucket_sizes.size()));
  if (sizes == nullptr) return nullptr;
  for (size_t i = 0; i < state.bucket_sizes.size(); ++i) {
    PyList_SET_ITEM(sizes, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(state.bucket_sizes[i]));
  }
  return Py_BuildValue("NNNNn", PyBool_FromLong(state.complete), PyBool_FromLong(state.launched), PyBool_FromLong(state.began),
                       sizes, static_cast<Py_ssize_t>(state.sent_again));
}

PyMethodDef reducer_methods[] = {
    {"configure", &Configure, METH_VARARGS, "configure(bucket_bytes, wire): wire is bf16, fp16 or None"},
    {"arm", &ArmReducer, METH_NOARGS, "arm()"},
    {"disarm", &Disarm, METH_NOARGS, "disarm()"},
    {"finish", &Finish, METH_NOARGS, "finish(); RuntimeError where it was not reduced"},
    {"discard", &Discard, METH_NOARGS, "discard()"},
    {"state", &State, METH_NOARGS, "state() -> (complete, launched, began, elements of each bucket, buckets sent again)"},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(&New)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(&Free)},
                       {Py_tp_methods, reducer_methods},
                       {0, nullptr}};
PyType_Spec spec = {"gradgate._tap.Reducer", sizeof(ReducerObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool AddReducer(PyObject* module) {
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  const bool added = PyModule_AddObjectRef(module, "Reducer", type) == 0;
  Py_DECREF(type);
  return added;
}

}  // namespace gradgate::tap
