// The Python module: thin calls on Ledgers, Completions and the kernel. gradgate/_tap_native.py is its only user.
//
// No lock is waited for with the interpreter's held. `active`, `late` and the two calls of `steps` are on the hot path: they
// take no lock and allocate nothing.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shim/torch/completions.h"
#include "shim/torch/kernel.h"
#include "shim/torch/ledgers.h"
#include "shim/torch/reducer.h"

namespace gradgate::tap {
namespace {

using BeginFunction = decltype(&gg_ledger_micro_step_begin);
using EndFunction = decltype(&gg_ledger_micro_step_end);

PyObject* handle_name = nullptr;     // "handle"
PyObject* first_gradient = nullptr;  // called with a ledger's address

// Runs `call` without the interpreter's lock; a C++ exception becomes a RuntimeError.
template <typename F>
PyObject* Unlocked(F call) {
  std::string failure;
  Py_BEGIN_ALLOW_THREADS;
  try {
    call();
  } catch (const std::exception& error) {
    failure = *error.what() ? error.what() : "unknown";
  }
  Py_END_ALLOW_THREADS;
  if (!failure.empty()) {
    PyErr_SetString(PyExc_RuntimeError, failure.c_str());
    return nullptr;
  }
  Py_RETURN_NONE;
}

gg_ledger* AsLedger(unsigned long long address) { return reinterpret_cast<gg_ledger*>(address); }

// The ledger of an object with an attribute `handle`; null with an exception, or for None.
gg_ledger* LedgerOf(PyObject* object) {
  if (object == Py_None) return nullptr;
  PyObject* const handle = PyObject_GetAttr(object, handle_name);
  if (handle == nullptr) return nullptr;
  void* const address = PyLong_AsVoidPtr(handle);
  Py_DECREF(handle);
  return static_cast<gg_ledger*>(address);
}

void FireFirstGradient(gg_ledger* ledger) {
  if (!Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* const result = first_gradient == nullptr
                               ? nullptr
                               : PyObject_CallFunction(first_gradient, "K", reinterpret_cast<unsigned long long>(ledger));
  if (result == nullptr && PyErr_Occurred()) PyErr_WriteUnraisable(first_gradient);
  Py_XDECREF(result);
  PyGILState_Release(state);
}

PyObject* WatchOperator(PyObject*, PyObject* args) {
  const char* name = nullptr;
  const char* overload = nullptr;
  unsigned op = 0;
  int group = 0;
  int payload = 0;
  if (!PyArg_ParseTuple(args, "ssIii", &name, &overload, &op, &group, &payload)) return nullptr;
  bool registered = false;
  const Operator operation{name, overload, op, group, payload};
  PyObject* const none = Unlocked([&] { registered = Register(operation); });
  if (none == nullptr) return nullptr;
  Py_DECREF(none);
  return PyBool_FromLong(registered);
}

PyObject* OnFirstGradient(PyObject*, PyObject* callback) {
  Py_INCREF(callback);
  Py_XSETREF(first_gradient, callback);
  SetFirstGradientCallback(&FireFirstGradient);
  Py_RETURN_NONE;
}

PyObject* Bind(PyObject*, PyObject* args) {
  unsigned long long ledger = 0;
  unsigned long long issued = 0;
  unsigned long long done = 0;
  if (!PyArg_ParseTuple(args, "KKK", &ledger, &issued, &done)) return nullptr;
  return Unlocked([=] {
    Ledgers::Instance().Bind(AsLedger(ledger), reinterpret_cast<IssuedFunction>(issued), reinterpret_cast<DoneFunction>(done));
  });
}

PyObject* Unbind(PyObject*, PyObject* args) {
  unsigned long long ledger = 0;
  if (!PyArg_ParseTuple(args, "K", &ledger)) return nullptr;
  return Unlocked([=] { Ledgers::Instance().Unbind(AsLedger(ledger)); });
}

PyObject* SetRole(PyObject*, PyObject* args) {
  unsigned long long ledger = 0;
  const char* group = nullptr;
  unsigned role = 0;
  if (!PyArg_ParseTuple(args, "KsI", &ledger, &group, &role)) return nullptr;
  return Unlocked([=] { Ledgers::Instance().SetRole(AsLedger(ledger), group, role); });
}

PyObject* SetOurs(PyObject*, PyObject* args) {
  const char* group = nullptr;
  if (!PyArg_ParseTuple(args, "s", &group)) return nullptr;
  return Unlocked([=] { Ledgers::Instance().SetOurs(group); });
}

PyObject* SetSizes(PyObject*, PyObject* args) {
  unsigned long long ledger = 0;
  PyObject* given = nullptr;
  if (!PyArg_ParseTuple(args, "KO", &ledger, &given)) return nullptr;
  std::vector<int64_t> sizes;
  if (given != Py_None) {
    PyObject* const items = PySequence_Fast(given, "sizes: a sequence of integers");
    if (items == nullptr) return nullptr;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); ++i) {
      sizes.push_back(PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items, i)));
    }
    Py_DECREF(items);
    if (PyErr_Occurred()) return nullptr;
  }
  return Unlocked([&] { Ledgers::Instance().SetSizes(AsLedger(ledger), std::move(sizes), given == Py_None); });
}

PyObject* Arm(PyObject*, PyObject* args) {
  unsigned long long ledger = 0;
  int armed = 0;
  if (!PyArg_ParseTuple(args, "Kp", &ledger, &armed)) return nullptr;
  return Unlocked([=] { Ledgers::Instance().Arm(AsLedger(ledger), armed != 0); });
}

PyObject* Active(PyObject*, PyObject* object) {
  gg_ledger* const ledger = LedgerOf(object);
  if (ledger == nullptr && PyErr_Occurred()) return nullptr;
  Ledgers::Instance().SetActive(ledger);
  Py_RETURN_NONE;
}

PyObject* Late(PyObject*, PyObject* on) {
  SetLate(PyObject_IsTrue(on) == 1);
  Py_RETURN_NONE;
}

PyObject* Poll(PyObject*, PyObject*) {
  if (Completions::Instance().Outstanding() == 0) Py_RETURN_NONE;
  return Unlocked([] { Completions::Instance().Poll(); });
}

PyObject* Outstanding(PyObject*, PyObject*) { return PyLong_FromSize_t(Completions::Instance().Outstanding()); }

// --- The micro-steps of one ledger
// --------------------------------------------------------------------------------------------

struct Steps {
  gg_ledger* ledger;  // null once the ledger is unbound
  BeginFunction begin;
  EndFunction end;
  PyObject* slow_begin;  // ledger.micro_step_begin: raises what went wrong
  PyObject* slow_end;
};

constexpr char kStepsName[] = "gradgate.tap.steps";

Steps* StepsOf(PyObject* capsule) { return static_cast<Steps*>(PyCapsule_GetPointer(capsule, kStepsName)); }

void FreeSteps(PyObject* capsule) {
  Steps* const steps = StepsOf(capsule);
  Py_XDECREF(steps->slow_begin);
  Py_XDECREF(steps->slow_end);
  delete steps;
}

PyObject* StepsBegin(PyObject* capsule, PyObject* last) {
  Steps* const steps = StepsOf(capsule);
  if (steps == nullptr) return nullptr;
  const unsigned long value = PyLong_AsUnsignedLong(last);
  if (value == static_cast<unsigned long>(-1) && PyErr_Occurred()) return nullptr;
  uint32_t closes = 0;
  if (steps->ledger == nullptr || steps->begin(steps->ledger, static_cast<uint32_t>(value), &closes, nullptr) != GG_OK) {
    return PyObject_CallOneArg(steps->slow_begin, last);
  }
  Ledgers::Instance().SetActive(steps->ledger);
  return PyLong_FromUnsignedLong(closes);
}

PyObject* StepsEnd(PyObject* capsule, PyObject*) {
  Steps* const steps = StepsOf(capsule);
  if (steps == nullptr) return nullptr;
  Ledgers::Instance().SetActive(nullptr);
  if (steps->ledger == nullptr || steps->end(steps->ledger, nullptr) != GG_OK) return PyObject_CallNoArgs(steps->slow_end);
  Py_RETURN_NONE;
}

PyMethodDef steps_begin = {"begin", &StepsBegin, METH_O, "begin(last) -> closes"};
PyMethodDef steps_end = {"end", &StepsEnd, METH_NOARGS, "end()"};

// (capsule, begin, end)
PyObject* MakeSteps(PyObject*, PyObject* args) {
  unsigned long long ledger = 0;
  unsigned long long begin = 0;
  unsigned long long end = 0;
  PyObject* slow_begin = nullptr;
  PyObject* slow_end = nullptr;
  if (!PyArg_ParseTuple(args, "KKKOO", &ledger, &begin, &end, &slow_begin, &slow_end)) return nullptr;
  auto steps = std::make_unique<Steps>(Steps{AsLedger(ledger), reinterpret_cast<BeginFunction>(begin),
                                             reinterpret_cast<EndFunction>(end), slow_begin, slow_end});
  PyObject* const capsule = PyCapsule_New(steps.get(), kStepsName, &FreeSteps);
  if (capsule == nullptr) return nullptr;
  Py_INCREF(slow_begin);
  Py_INCREF(slow_end);
  steps.release();
  return Py_BuildValue("NNN", capsule, PyCFunction_New(&steps_begin, capsule), PyCFunction_New(&steps_end, capsule));
}

PyObject* StopSteps(PyObject*, PyObject* capsule) {
  Steps* const steps = StepsOf(capsule);
  if (steps == nullptr) return nullptr;
  steps->ledger = nullptr;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"watch", &WatchOperator, METH_VARARGS, "watch(name, overload, op, group, payload) -> whether it is watched now"},
    {"on_first_gradient", &OnFirstGradient, METH_O, "on_first_gradient(callable): called with the address of an armed ledger"},
    {"bind", &Bind, METH_VARARGS, "bind(ledger, issued, done), all addresses"},
    {"unbind", &Unbind, METH_VARARGS, "unbind(ledger)"},
    {"role", &SetRole, METH_VARARGS, "role(ledger, group_name, role)"},
    {"ours", &SetOurs, METH_VARARGS, "ours(group_name)"},
    {"sizes", &SetSizes, METH_VARARGS, "sizes(ledger, sequence or None)"},
    {"arm", &Arm, METH_VARARGS, "arm(ledger, on)"},
    {"active", &Active, METH_O, "active(object with a handle, or None)"},
    {"late", &Late, METH_O, "late(on)"},
    {"poll", &Poll, METH_NOARGS, "poll()"},
    {"outstanding", &Outstanding, METH_NOARGS, "outstanding() -> int"},
    {"steps", &MakeSteps, METH_VARARGS, "steps(ledger, begin, end, slow_begin, slow_end) -> (capsule, begin, end)"},
    {"stop", &StopSteps, METH_O, "stop(capsule): its calls take the slow way from now on"},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_tap", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace gradgate::tap

PyMODINIT_FUNC PyInit__tap() {
  gradgate::tap::handle_name = PyUnicode_InternFromString("handle");
  if (gradgate::tap::handle_name == nullptr) return nullptr;
  PyObject* const module = PyModule_Create(&gradgate::tap::module);
  if (module != nullptr && gradgate::tap::AddReducer(module)) return module;
  Py_XDECREF(module);
  return nullptr;
}
