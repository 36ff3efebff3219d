/* gradgate.h: the C interface of the gradgate shim.
 *
 * A session belongs to one rank of a data-parallel job. The training loop tells it when a micro-step begins and ends, when a
 * gradient is ready, and when the optimizer is about to step. The session decides at which micro-step gradients are reduced,
 * reduces them over a transport, counts every collective, and publishes the counts to the node's daemon if there is one.
 *
 *     gg_store_open ── gg_transport_open_gloo ── gg_session_create      (blocking, with deadlines)
 *     for each micro-step:  gg_micro_step_begin, gg_gradient_ready…, gg_micro_step_end
 *     for each window:      gg_step_begin, then the optimizer's step if it returned GG_OK
 *     gg_session_close, gg_session_destroy, gg_transport_destroy, gg_store_destroy
 *
 * Where a framework reduces by itself, as PyTorch's wrappers do, a ledger takes the session's place: it decides and counts, and
 * its owner sees to it that the framework does as decided. See "Ledger" below.
 *
 * Conventions
 *   1. C99 and C++; only stdint.h and stddef.h. No exception and no C++ type crosses.
 *   2. Every function that can fail returns gg_status_t, numerically a canonical (absl, gRPC) code. Text goes into the optional
 *      gg_error of the caller: pass NULL when it is not wanted.
 *   3. Structs handed in begin with struct_size and are set up by their GG_…_INIT; a zero field means its default; reserved
 *      fields are zero. A struct larger than this library knows is accepted if its unknown tail is zero, else
 *      GG_UNIMPLEMENTED. Structs handed out are filled up to the caller's struct_size.
 *   4. Handles are opaque. Outputs come last and are untouched on failure. Destroying NULL is fine.
 *   5. Thread classes: "setup only" = one thread, no other call on the handle at the same time, may block;
 *      "loop thread" = one thread at a time per session; "any thread" = no restriction.
 *   6. Times are int64 nanoseconds. A deadline of 0 means the default; there is no infinite wait.
 *   7. After fork(), the handles of the parent are dead in the child: every call returns GG_FAILED_PRECONDITION, and nothing
 * the child does reaches the parent's counts or its link to the daemon.
 *
 * What never fails training: the daemon and the stats page. Trouble there is a warning and a counter.
 */
#ifndef GRADGATE_GRADGATE_H_
#define GRADGATE_GRADGATE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define GG_API __attribute__((visibility("default")))
#else
#define GG_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Same major: compatible. The library's minor must be at least the one compiled against. */
#define GG_ABI_MAJOR 1
#define GG_ABI_MINOR 3

/* GG_ABI_MAJOR << 16 | GG_ABI_MINOR of the library. Any thread; cannot fail. */
GG_API uint32_t gg_abi_version(void);

/* Version of the library, for people: "0.1.0". Static. Any thread; cannot fail. */
GG_API const char* gg_version(void);

/* --- Status ------------------------------------------------------------------------------------------------------------- */

typedef int32_t gg_status_t;
enum {
  GG_OK = 0,
  GG_INVALID_ARGUMENT = 3,  /* the message names the value and the remedy */
  GG_DEADLINE_EXCEEDED = 4, /* the message names the ranks that did not come */
  GG_NOT_FOUND = 5,
  GG_RESOURCE_EXHAUSTED = 8,
  GG_FAILED_PRECONDITION = 9, /* the call does not fit the session's state */
  GG_ABORTED = 10,            /* ranks disagree; the message names them */
  GG_UNIMPLEMENTED = 12,
  GG_INTERNAL = 13,
  GG_UNAVAILABLE = 14 /* a peer's connection broke; the message names the ranks */
};

/* Text of the last failure of the call it was passed to. Owned by the caller; written only on failure. */
typedef struct gg_error {
  gg_status_t code;
  uint32_t reserved;
  char message[1016]; /* zero-terminated; cut at a character when too long */
} gg_error;

/* Name of a status code, "DEADLINE_EXCEEDED". Static; "UNKNOWN" for others. Any thread; cannot fail. */
GG_API const char* gg_status_name(gg_status_t status);

/* --- Rendezvous store --------------------------------------------------------------------------------------------------- */

/* A small key-value store that all ranks of a job reach: the handshake and the naming of missing ranks go through it. */
typedef struct gg_store gg_store;

typedef struct gg_store_options {
  uint32_t struct_size;
  uint32_t serve;      /* tcp: 1 on the one rank that hosts the store; a thread of that process serves it */
  const char* url;     /* "file:///a/shared/directory" (made if missing, must be new for each run) or "tcp://host:port" */
  int64_t deadline_ns; /* to connect; default 60 s */
} gg_store_options;
#define GG_STORE_OPTIONS_INIT \
  { sizeof(gg_store_options), 0, NULL, 0 }

/* Opens a store by its URL.
 * Setup only; blocks up to deadline_ns. The caller owns *out and keeps it longer than the transports and sessions that use it.
 * GG_INVALID_ARGUMENT: URL. GG_DEADLINE_EXCEEDED, GG_UNAVAILABLE: the host does not answer; the address cannot be bound. */
GG_API gg_status_t gg_store_open(const gg_store_options* options, gg_store** out, gg_error* error);

/* A store of the caller's, such as torch's. Callbacks are called on the thread that called into gradgate, no lock held; they
 * may block until deadline_ns (relative, > 0) and must not call gradgate. */
typedef struct gg_store_callbacks {
  uint32_t struct_size;
  uint32_t reserved;
  void* user;
  /* Stores a value, replacing an older one. Returns a gg_status_t. */
  gg_status_t (*set)(void* user, const char* key, const void* value, size_t value_bytes, int64_t deadline_ns);
  /* Reads a value into buffer[capacity] and its full size into *value_bytes. GG_NOT_FOUND: not there within deadline_ns. */
  gg_status_t (*get)(void* user, const char* key, void* buffer, size_t capacity, size_t* value_bytes, int64_t deadline_ns);
} gg_store_callbacks;
#define GG_STORE_CALLBACKS_INIT \
  { sizeof(gg_store_callbacks), 0, NULL, NULL, NULL }

/* Wraps the caller's store. Setup only; does not block. `callbacks` is copied, `user` must outlive *out.
 * GG_INVALID_ARGUMENT: a callback is NULL. */
GG_API gg_status_t gg_store_create(const gg_store_callbacks* callbacks, gg_store** out, gg_error* error);

GG_API void gg_store_destroy(gg_store* store);

/* --- Transport ---------------------------------------------------------------------------------------------------------- */

/* The collectives of one group of ranks, issued in the same order on all of them. */
typedef struct gg_transport gg_transport;

typedef struct gg_gloo_options {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t world_size;
  uint32_t reserved;
  gg_store* store;            /* required; used while connecting */
  const char* interface_name; /* NULL: GLOO_SOCKET_IFNAME, else the interface of this host's name, else loopback */
  const char* group_name;     /* distinguishes several groups on one store; NULL: "dp" */
  int64_t deadline_ns;        /* to connect all ranks; default 60 s */
} gg_gloo_options;
#define GG_GLOO_OPTIONS_INIT \
  { sizeof(gg_gloo_options), 0, 1, 0, NULL, NULL, NULL, 0 }

/* Connects all ranks of a group over Gloo (TCP). Gloo's collectives block, so the transport runs them on a thread of its own.
 * Setup only; blocks up to deadline_ns. The caller owns *out and keeps it longer than the sessions that use it.
 * GG_INVALID_ARGUMENT: rank or world size. GG_DEADLINE_EXCEEDED: names the ranks that did not come. GG_UNAVAILABLE: no such
 * interface. GG_UNIMPLEMENTED: the library was built without Gloo. */
GG_API gg_status_t gg_transport_open_gloo(const gg_gloo_options* options, gg_transport** out, gg_error* error);

GG_API void gg_transport_destroy(gg_transport* transport);

/* --- Session ------------------------------------------------------------------------------------------------------------ */

typedef struct gg_session gg_session;

typedef uint32_t gg_dtype;
enum { GG_FLOAT32 = 1, GG_FLOAT64 = 2 };

/* When gradients are reduced. */
typedef uint32_t gg_mode;
enum {
  GG_MODE_DEFAULT = 0, /* window */
  GG_MODE_EVERY_MICRO_STEP = 1,
  GG_MODE_WINDOW = 2,
  GG_MODE_WINDOW_REPLICA = 3, /* shard groups in each micro-step, replicas once a window; ledgers alone */
  GG_MODE_AUTO = 4            /* chosen while training, see gg_ledger_set_mode; ledgers alone */
};

/* Whether ranks may bring different numbers of micro-steps to a window. */
typedef uint32_t gg_windows;
enum {
  GG_WINDOWS_EQUAL = 0,   /* a difference is told by rank before the step; an error when strict */
  GG_WINDOWS_VARIABLE = 1 /* allowed and exact */
};

/* What the sum of gradients is divided by. */
typedef uint32_t gg_divide;
enum {
  GG_DIVIDE_WORLD = 0,  /* all ranks of the job */
  GG_DIVIDE_ACTIVE = 1, /* the ranks that brought at least one micro-step to this window */
  GG_DIVIDE_ITEMS = 2,  /* the items of all ranks in this window: the loss is a sum over items */
  GG_DIVIDE_NONE = 3    /* nothing: a sum */
};

/* One parameter's gradient, dense and contiguous. */
typedef struct gg_tensor {
  const char* name; /* for messages; copied */
  void* gradient;   /* the caller's memory, copied to and from buckets; NULL: the session allocates it as a view of a bucket */
  uint64_t element_count; /* > 0 */
  gg_dtype dtype;
  uint32_t reserved;
} gg_tensor;

typedef uint32_t gg_severity;
enum { GG_SEVERITY_INFO = 0, GG_SEVERITY_WARNING = 1 };

/* Receives messages for people. Called on the thread that called into gradgate, no lock held; must not call gradgate. `reason`
 * is a stable short code such as "ranks_disagree"; each reason is told once, later ones are only counted. */
typedef void (*gg_log_function)(void* user, gg_severity severity, const char* reason, const char* message);

typedef struct gg_session_options {
  uint32_t struct_size;
  uint32_t accumulate; /* micro-steps per window; default 1 */
  gg_mode mode;
  gg_windows windows;
  gg_divide divide;
  uint32_t strict;     /* 1: whatever would be a warning about ranks that differ is an error on all ranks */
  uint32_t rank;       /* default: the transport's */
  uint32_t world_size; /* default: the transport's, else 1 */
  int32_t local_rank;  /* < 0 : from LOCAL_RANK, SLURM_LOCALID, OMPI_COMM_WORLD_LOCAL_RANK, else the rank */
  uint32_t tensor_count;
  const gg_tensor* tensors; /* in order of registration (the order of the forward); same on all ranks */
  gg_store* store;          /* required when world_size > 1 */
  gg_transport* transport;  /* required when world_size > 1 */
  const char* job_name;     /* NULL: GRADGATE_JOB, TORCHELASTIC_RUN_ID, SLURM_JOB_NAME, else the program's */
  const char* daemon_dir;   /* where shim.sock is; NULL: GRADGATE_DIR, /run/gradgate, $XDG_RUNTIME_DIR/gradgate; "": no link */
  uint64_t bucket_bytes;    /* upper bound of a bucket (one tensor may exceed it); default 25 MiB */
  int64_t deadline_ns;      /* for each window's reduction, naming of missing ranks included; default 300 s */
  int64_t handshake_deadline_ns; /* default 60 s */
  gg_log_function log;           /* NULL: one line on stderr */
  void* log_user;
} gg_session_options;
#define GG_SESSION_OPTIONS_INIT \
  { sizeof(gg_session_options), 0, 0, 0, 0, 0, 0, 0, -1, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL }

/* Creates a session: allocates buckets, shakes hands with all ranks through the store, makes the stats page, looks for the
 * daemon. GRADGATE=off|audit|enforce (default enforce) must be the same on all ranks: off and audit reduce at every micro-step.
 * Setup only; blocks up to handshake_deadline_ns. Store and transport are borrowed and must outlive the session.
 * GG_INVALID_ARGUMENT: the option named. GG_DEADLINE_EXCEEDED: "no gradgate on ranks […]". GG_ABORTED: ranks with another
 * version or configuration, named with what differs. */
GG_API gg_status_t gg_session_create(const gg_session_options* options, gg_session** out, gg_error* error);

/* The memory of a tensor's gradient: the caller's, or the session's view, zeroed at creation and valid until
 * gg_session_destroy. Any thread. GG_INVALID_ARGUMENT: index. */
GG_API gg_status_t gg_session_gradient(gg_session* session, uint32_t tensor, void** out, gg_error* error);

/* --- The loop ----------------------------------------------------------------------------------------------------------- */

#define GG_MAX_ITEM_COUNT (INT64_C(1) << 40)

enum { GG_LAST_BY_COUNT = 0, GG_LAST_NO = 1, GG_LAST_YES = 2 };

typedef struct gg_micro_step {
  uint32_t struct_size;
  uint32_t last;      /* GG_LAST_…: whether this micro-step closes its window; BY_COUNT: the accumulate-th does */
  int64_t item_count; /* items (tokens, boxes) whose losses were summed; 0 to GG_MAX_ITEM_COUNT; only with GG_DIVIDE_ITEMS */
} gg_micro_step;
#define GG_MICRO_STEP_INIT \
  { sizeof(gg_micro_step), GG_LAST_BY_COUNT, 0 }

/* Begins a micro-step: call before the forward. *boundary is 1 if gradients will be reduced during this micro-step.
 * Loop thread; does not block, unless the previous window was reduced and not stepped: then up to deadline_ns. A suppressed
 * micro-step makes no system call but one try a second to reach an absent daemon. `micro_step` may be NULL.
 * GG_FAILED_PRECONDITION: the previous micro-step has not ended, or the session has failed or is closed. GG_INVALID_ARGUMENT:
 * field. */
GG_API gg_status_t gg_micro_step_begin(gg_session* session, const gg_micro_step* micro_step, uint32_t* boundary,
                                       gg_error* error);

/* Tells that a tensor's gradient of this micro-step is complete, in any order. In a boundary micro-step a bucket whose last
 * gradient arrives is launched; the tensor must not be touched until gg_step_begin (gg_micro_step_end, if every micro-step
 * reduces) has returned. Loop thread; does not block. GG_FAILED_PRECONDITION: outside a micro-step, or twice in one.
 * GG_INVALID_ARGUMENT: index. */
GG_API gg_status_t gg_gradient_ready(gg_session* session, uint32_t tensor, gg_error* error);

/* Ends a micro-step: call after the backward. Launches what gg_gradient_ready has not (tensors that got no gradient take part
 * as they are). Loop thread; blocks only where every micro-step reduces, up to deadline_ns. Errors: as gg_step_begin. */
GG_API gg_status_t gg_micro_step_end(gg_session* session, gg_error* error);

/* Undoes gg_micro_step_begin for a micro-step that failed before it added to a gradient (out of memory in the forward, say) and
 * will be tried again: the window is as before. Loop thread; does not block. GG_FAILED_PRECONDITION: outside a micro-step, or a
 * gradient was told ready. */
GG_API gg_status_t gg_micro_step_abandon(gg_session* session, gg_error* error);

typedef uint32_t gg_window_kind;
enum { GG_WINDOW_FULL = 1, GG_WINDOW_PARTIAL = 2, GG_WINDOW_EMPTY = 3 };

/* What a window was, told at its step. */
typedef struct gg_window {
  uint32_t struct_size;
  gg_window_kind kind;      /* of this rank */
  uint64_t window_index;    /* from 0 */
  uint32_t micro_steps;     /* of this rank */
  uint32_t min_micro_steps; /* over all ranks */
  uint32_t max_micro_steps; /* over all ranks; 0: nobody brought data, nothing was reduced, do not step */
  uint32_t active_ranks;    /* ranks with data; 0 unless the divide option needs it */
  uint32_t late;            /* 1: reduced in this call */
  uint32_t disagreed;       /* 1: ranks brought different numbers where equal ones were declared */
  int64_t item_count;       /* over all ranks; 0 unless GG_DIVIDE_ITEMS */
  uint32_t policy_adopted;  /* 1: a policy is in force from the next window on; see gg_policy. Since 1.3 */
  uint32_t policy_offered;  /* ledgers: 1: gg_ledger_policy_offered waits for an answer. Since 1.3 */
} gg_window;
#define GG_WINDOW_INIT \
  { sizeof(gg_window), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* The optimizer is about to step: call on all ranks before each step. Closes the window; gradients not reduced yet are reduced
 * now, late; a rank without data takes part with zeros. On GG_OK every gradient holds the same reduced values on all ranks; on
 * any other status the optimizer must not step. `window` may be NULL. Loop thread; blocks up to deadline_ns.
 * GG_FAILED_PRECONDITION: inside a micro-step. GG_DEADLINE_EXCEEDED, GG_UNAVAILABLE: names the ranks that did not come.
 * GG_ABORTED: ranks disagree, named. After these three the session has failed: only stats, close and destroy work. */
GG_API gg_status_t gg_step_begin(gg_session* session, gg_window* window, gg_error* error);

/* Closes what is left at the end of the data, on all ranks: while (gg_flush(…) == GG_OK && flushed) step. *flushed is 1 if this
 * rank or any other brought micro-steps; gradients are then reduced and ready for a step (without another gg_step_begin). It is
 * 0 on all ranks at once, when none has data left: a rank whose data ends early goes on taking part, with zeros, in the windows
 * of those that still train. divisor: the loops divided each loss by it, so gradients are multiplied by divisor / micro_steps;
 * 0: leave them. It needs equal numbers of micro-steps, the same divisor on all ranks, and a window whose end was not told by
 * GG_LAST_YES; else GG_FAILED_PRECONDITION on all. Loop thread; blocks up to deadline_ns. Errors: as gg_step_begin. */
GG_API gg_status_t gg_flush(gg_session* session, uint32_t divisor, uint32_t* flushed, gg_window* window, gg_error* error);

/* --- Counts ------------------------------------------------------------------------------------------------------------- */

typedef uint32_t gg_group;
enum { GG_GROUP_DP = 0, GG_GROUP_SHARD = 1, GG_GROUP_REPLICATE = 2, GG_GROUP_OTHER = 3 };

typedef uint32_t gg_op;
enum {
  GG_OP_ALL_REDUCE = 0,
  GG_OP_REDUCE_SCATTER = 1,
  GG_OP_ALL_GATHER = 2,
  GG_OP_BROADCAST = 3,
  GG_OP_REDUCE = 4,
  GG_OP_GATHER = 5,
  GG_OP_SCATTER = 6,
  GG_OP_ALL_TO_ALL = 7,
  GG_OP_BARRIER = 8,
  GG_OP_SEND = 9,
  GG_OP_RECV = 10
};

/* Counts of this rank since gg_session_create; the daemon shows the same. */
typedef struct gg_stats {
  uint32_t struct_size;
  uint32_t linked; /* 1: a daemon has welcomed this rank and the connection stands */
  uint64_t micro_steps;
  uint64_t steps; /* allowed */
  uint64_t windows_full;
  uint64_t windows_partial;
  uint64_t windows_empty;
  uint64_t windows_late;
  uint64_t windows_unstepped;  /* reduced, then a new window began without a step */
  uint64_t windows_mismatched; /* issued reductions were not the intended ones */
  uint64_t windows_disagreed;
  uint64_t ballots;
  uint64_t refused;
  uint64_t warnings;
  uint64_t items;
  uint64_t reductions_intended;
  uint64_t reductions_issued;
  uint64_t reductions_suppressed;
  uint64_t reductions_late;
  uint64_t gradient_collectives;
  uint64_t gradient_bytes;
  uint64_t exposed_ns; /* time that gradient synchronisation added to windows */
  uint64_t wait_ns;
  uint64_t micro_step_ns;
  uint64_t window_ns;
  uint64_t reductions_declared_extra; /* forced by the framework; these four since 1.1, of ledgers */
  uint64_t overrides;                 /* reductions that something issued against the policy */
  uint64_t windows_discarded;
  uint64_t micro_steps_skipped; /* to which this rank contributed nothing */
} gg_stats;
#define GG_STATS_INIT \
  { sizeof(gg_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Any thread; does not block; each number is exact, no two need be from the same instant. GG_INVALID_ARGUMENT: NULL. */
GG_API gg_status_t gg_stats_get(gg_session* session, gg_stats* out, gg_error* error);

/* Collectives of one operation in groups of one role. */
typedef struct gg_collective_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t intended;        /* gradient collectives the policy wanted */
  uint64_t gradient_issued; /* to carry gradients */
  uint64_t ours_issued;     /* gradgate's own: ballots, item counts */
  uint64_t other_issued;    /* the trainer's own */
  uint64_t gradient_bytes;
  uint64_t ours_bytes;
  uint64_t other_bytes;
  uint64_t tensors;
  uint64_t completed; /* all classes */
  uint64_t gradient_completed;
  uint64_t failed;
  uint64_t unknown; /* completion cannot be observed */
  uint64_t duration_ns;
} gg_collective_stats;
#define GG_COLLECTIVE_STATS_INIT \
  { sizeof(gg_collective_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* As gg_stats_get. GG_INVALID_ARGUMENT: group or op. */
GG_API gg_status_t gg_collective_stats_get(gg_session* session, gg_group group, gg_op op, gg_collective_stats* out,
                                           gg_error* error);

typedef uint32_t gg_wire;
enum { GG_WIRE_AS_GIVEN = 0, GG_WIRE_GRADIENT = 1, GG_WIRE_BF16 = 2, GG_WIRE_FP16 = 3 };

typedef uint32_t gg_reshard; /* parameters that a sharded wrapper gathers */
enum { GG_RESHARD_AS_GIVEN = 0, GG_RESHARD_EVERY_MICRO_STEP = 1, GG_RESHARD_WINDOW = 2 };

/* What a job is to do, as somebody set it through the daemon while it runs, adopted by all ranks at the same window or by none.
 * A field that is 0: as given at creation. Since 1.3. */
typedef struct gg_policy {
  uint32_t struct_size;
  gg_mode mode;
  gg_wire wire;
  gg_reshard reshard;
  uint32_t enforcement; /* GG_ENFORCEMENT_AUDIT or GG_ENFORCEMENT_ENFORCE */
  uint32_t reserved;
  uint64_t bucket_bytes;
  uint64_t version;        /* 0: none */
  uint64_t adopted_window; /* the first under it */
} gg_policy;
#define GG_POLICY_INIT \
  { sizeof(gg_policy), 0, 0, 0, 0, 0, 0, 0, 0 }

/* The policy in force; the session carries it out by itself. It takes mode, bucket size (where no gradient is a view of a
 * bucket) and enforcement. Loop thread; does not block. GG_INVALID_ARGUMENT: NULL. Since 1.3. */
GG_API gg_status_t gg_policy_get(gg_session* session, gg_policy* out, gg_error* error);

/* Number of buckets the tensors were laid out in; changes with the policy. Loop thread; 0 for NULL. */
GG_API uint32_t gg_session_bucket_count(const gg_session* session);

/* Ends the session: tells the daemon goodbye; an open window is discarded and counted as a warning. No collective.
 * Setup only; blocks at most 0.2 s, to tell the other ranks. GG_FAILED_PRECONDITION: inside a micro-step. Twice is fine. */
GG_API gg_status_t gg_session_close(gg_session* session, gg_error* error);

/* Frees the session and the gradients it allocated. Setup only; waits for collectives in flight up to deadline_ns. A session
 * that was not closed reads to the daemon as a trainer that was lost. */
GG_API void gg_session_destroy(gg_session* session);

/* --- Ledger: for trainers whose framework reduces -------------------------------------------------------------------------
 *
 * A ledger decides when gradients are reduced and counts what is, but issues no collective: its owner (an adapter of a
 * framework) suppresses, reduces, and carries the words of ballots between ranks by a MAX all-reduce of its own. Since 1.1.
 *
 *     gg_ledger_create                                                  (blocking, with a deadline)
 *     for each micro-step:  gg_ledger_micro_step_begin, gg_ledger_collective_issued…, gg_ledger_micro_step_end
 *     at the boundary:      gg_ledger_vote, MAX all-reduce, gg_ledger_verdict, [gg_ledger_late_begin, late reduction]
 *     then                  gg_ledger_window_close, gg_ledger_close, gg_ledger_destroy
 *
 * A reduction of a role is the first gradient collective in groups of that role since gg_ledger_micro_step_begin or
 * gg_ledger_late_begin, and all that follow it until the next of these. */

typedef struct gg_ledger gg_ledger;

typedef struct gg_ledger_options {
  uint32_t struct_size;
  uint32_t accumulate; /* micro-steps per window; 0: not declared, no micro-step closes by count */
  gg_mode mode;        /* auto begins as window (roles without shard), window_replica (with both) or every_micro_step */
  gg_windows windows;
  uint32_t strict; /* a fact of the job; the owner acts on it */
  uint32_t rank;
  uint32_t world_size; /* default 1 */
  int32_t local_rank;  /* < 0 : as in gg_session_options */
  uint32_t roles;      /* bits 1 << GG_GROUP_…: where the framework reduces. 0: nowhere, a process alone */
  uint32_t reserved;
  gg_store* store;        /* required when world_size > 1; borrowed, outlives the ledger */
  const char* job_name;   /* as in gg_session_options */
  const char* daemon_dir; /* as in gg_session_options */
  const char* facts;      /* lines "name=value" that must be equal on all ranks; NULL: none */
  const char* scope;   /* tells several ledgers of one process apart on the store and, added to the job's name, in the daemon:
                          "" or NULL for the first, then "#2", … */
  int64_t deadline_ns; /* for each wait of the owner, naming of missing ranks included; default 300 s */
  int64_t handshake_deadline_ns; /* default 60 s */
  gg_log_function log;           /* NULL: one line on stderr */
  void* log_user;
} gg_ledger_options;
#define GG_LEDGER_OPTIONS_INIT \
  { sizeof(gg_ledger_options), 0, 0, 0, 0, 0, 0, -1, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL }

/* Creates a ledger: shakes hands with all ranks through the store, makes the stats page, looks for the daemon.
 * GRADGATE=off|audit (default enforce) must be the same on all ranks: the owner then leaves the framework alone, and is counted
 * all the same. Setup only; blocks up to handshake_deadline_ns. The store is borrowed and must outlive the ledger.
 * GG_INVALID_ARGUMENT: the option named. GG_DEADLINE_EXCEEDED: "no gradgate on ranks […]". GG_ABORTED: ranks with another
 * version, configuration or fact, named with what differs. */
GG_API gg_status_t gg_ledger_create(const gg_ledger_options* options, gg_ledger** out, gg_error* error);

typedef uint32_t gg_enforcement;
enum { GG_ENFORCEMENT_OFF = 1, GG_ENFORCEMENT_AUDIT = 2, GG_ENFORCEMENT_ENFORCE = 3 };

/* What GRADGATE was when the ledger was created, agreed by all ranks, or what the policy in force has made of it since. Loop
 * thread; cannot fail; 0 for NULL. */
GG_API gg_enforcement gg_ledger_enforcement(const gg_ledger* ledger);

/* Begins a micro-step: call before the forward. `last` is a GG_LAST_ constant; *closes is 1 if this micro-step ends its window.
 * Loop thread; does not block, lock or allocate, and makes no system call but one try a second to reach an absent daemon.
 * GG_FAILED_PRECONDITION: the previous micro-step has not ended, the window was not closed, or the ledger has failed or is
 * closed. GG_INVALID_ARGUMENT: last. */
GG_API gg_status_t gg_ledger_micro_step_begin(gg_ledger* ledger, uint32_t last, uint32_t* closes, gg_error* error);

/* Ends a micro-step: call after the backward. A closing micro-step in which a role was not reduced (skipped, without a
 * backward) leaves its window open, to be reduced late. Loop thread; as gg_ledger_micro_step_begin. GG_FAILED_PRECONDITION: no
 * micro-step has begun. */
GG_API gg_status_t gg_ledger_micro_step_end(gg_ledger* ledger, gg_error* error);

/* Undoes gg_ledger_micro_step_begin for a micro-step that failed: the window is as before, but collectives that were issued
 * stay counted. Loop thread; does not block. GG_FAILED_PRECONDITION: no micro-step has begun. */
GG_API gg_status_t gg_ledger_micro_step_abandon(gg_ledger* ledger, gg_error* error);

/* Where the loop is. */
typedef struct gg_place {
  uint32_t struct_size;
  uint32_t in_micro_step;
  uint64_t window_index; /* of the open window, or the next one */
  uint32_t micro_steps;  /* of the open window, ended ones */
  gg_mode mode;          /* in force; every_micro_step where GRADGATE is off or audit */
} gg_place;
#define GG_PLACE_INIT \
  { sizeof(gg_place), 0, 0, 0, 0 }

/* Fills *out. Loop thread; does not block. GG_INVALID_ARGUMENT: NULL. */
GG_API gg_status_t gg_ledger_place(gg_ledger* ledger, gg_place* out, gg_error* error);

#define GG_HEADROOM_UNKNOWN INT64_MAX /* no limit to compare with */
#define GG_VOTE_CAPACITY 64           /* words: room for a ballot of any library of this major version */

/* What a rank says of its window; the ledger adds where it is. */
typedef struct gg_vote {
  uint32_t struct_size;
  uint32_t contributes; /* 1: it reduces in its backward, before or while the ballot travels */
  uint32_t skipped;     /* micro-steps of this window to which it contributed nothing */
  uint32_t discard;     /* 1: no rank shall step this window */
  uint32_t out_of_data; /* 1: it has no further micro-batch */
  uint32_t sums;        /* 1: it wants the owner's SUM collective to follow */
  uint32_t divisor;     /* of a flush; 0: none */
  uint32_t reserved;
  int64_t parity;         /* hash of what ranks should hold alike; 0: not sampled, on all ranks or on none */
  int64_t headroom_bytes; /* memory left; GG_HEADROOM_UNKNOWN where it cannot be told, 0 means none is left */
  int64_t staged;         /* version of a change that waits for the agreement of all */
} gg_vote;
#define GG_VOTE_INIT \
  { sizeof(gg_vote), 0, 0, 0, 0, 0, 0, 0, 0, GG_HEADROOM_UNKNOWN, 0 }

/* Encodes this rank's ballot: *count words, the first half its fields, the second their negatives, for an all-reduce by MAX
 * over all ranks. Counts one ballot; with words NULL it only tells *count. Loop thread, or that of a backward which the loop
 * waits for; does not block.
 * GG_INVALID_ARGUMENT: field, or capacity too small. GG_FAILED_PRECONDITION: the ledger has failed or is closed. */
GG_API gg_status_t gg_ledger_vote(gg_ledger* ledger, const gg_vote* vote, int64_t* words, uint32_t capacity, uint32_t* count,
                                  gg_error* error);

/* What the reduced words say; the same on all ranks. */
typedef struct gg_verdict {
  uint32_t struct_size;
  uint32_t differs; /* 1: something to name: incompatible, unequal where equal windows are declared, skipped or discarded by
                       some ranks alone, or parity */
  uint32_t incompatible; /* 1: ranks are not in the same window, round and mode: their collectives do not belong together */
  uint32_t unequal;      /* 1: ranks brought different numbers of micro-steps */
  uint32_t min_micro_steps;
  uint32_t max_micro_steps; /* 0: nobody brought data */
  uint32_t all_contribute;
  uint32_t any_contribute;
  uint32_t min_skipped;
  uint32_t max_skipped;
  uint32_t any_discard;
  uint32_t all_out_of_data;
  uint32_t any_out_of_data;
  uint32_t any_sums;
  uint32_t min_divisor;
  uint32_t max_divisor;
  uint32_t parity_differs; /* 1: hashes differ, or only some ranks sampled one */
  uint32_t staged_equal;   /* 1: all ranks have staged the same */
  int64_t min_headroom_bytes;
  int64_t staged; /* the largest */
} gg_verdict;
#define GG_VERDICT_INIT \
  { sizeof(gg_verdict), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Reads reduced words. Loop thread; does not block. GG_INVALID_ARGUMENT: count is not gg_ledger_vote's. */
GG_API gg_status_t gg_ledger_verdict(gg_ledger* ledger, const int64_t* words, uint32_t count, gg_verdict* out, gg_error* error);

/* Says who differs in what: `rows` holds the first half of every rank's words as voted, rank after rank, `count` words in all.
 * text[capacity] is zero-terminated, cut at a character; empty if nobody differs. Loop thread; does not block.
 * GG_INVALID_ARGUMENT: count, capacity. */
GG_API gg_status_t gg_ledger_describe(gg_ledger* ledger, const int64_t* rows, uint32_t count, char* text, size_t capacity,
                                      gg_error* error);

/* Tells the others where this rank waits: call when a wait has lasted a second. Loop thread; blocks a second at most. A store
 * that does not answer is no error. */
GG_API gg_status_t gg_ledger_arrived(gg_ledger* ledger, gg_error* error);

/* This rank's wait has failed: tells the others that it came, and says who did not, as gg_ledger_describe writes text; empty if
 * all came and live. Close the window as failed then. Loop thread; blocks 2 s at most (a quarter of deadline_ns, if less).
 * GG_INVALID_ARGUMENT: capacity. */
GG_API gg_status_t gg_ledger_missing(gg_ledger* ledger, char* text, size_t capacity, gg_error* error);

/* This rank cannot go on, alone: writes `why` to the store, where ranks that wait for it find it, and records the window as
 * failed. Later calls but stats, close and destroy are refused. Loop thread; blocks 0.2 s at most. Twice is fine. */
GG_API gg_status_t gg_ledger_fail(gg_ledger* ledger, const char* why, gg_error* error);

/* What is issued from here to gg_ledger_window_close is late, and intended. Loop thread; does not block.
 * GG_FAILED_PRECONDITION: inside a micro-step. */
GG_API gg_status_t gg_ledger_late_begin(gg_ledger* ledger, gg_error* error);

/* How a window ended. */
typedef struct gg_window_end {
  uint32_t struct_size;
  uint32_t stepped;         /* 1: an optimizer step follows, or none is due since nobody brought data */
  uint32_t failed;          /* 1: a collective failed or ranks disagree: no step may follow, and the ledger has failed */
  uint32_t discarded;       /* 1: by agreement, no step follows */
  uint32_t min_micro_steps; /* over all ranks */
  uint32_t max_micro_steps;
  uint32_t active_ranks;
  uint32_t disagreed; /* 1: ranks brought different numbers where equal ones are declared */
  uint32_t skipped;   /* micro-steps to which this rank contributed nothing */
  uint32_t reserved;
  int64_t item_count_local;
  int64_t item_count_global;
  int64_t wait_ns; /* the owner's, for this window's ballot and reductions */
} gg_window_end;
#define GG_WINDOW_END_INIT \
  { sizeof(gg_window_end), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Closes the window, reduced or not (the counts tell), and publishes it; one non-blocking read of the daemon's socket. `out`
 * may be NULL. Loop thread; does not block. GG_FAILED_PRECONDITION: inside a micro-step, unless it failed. GG_INVALID_ARGUMENT:
 * field. */
GG_API gg_status_t gg_ledger_window_close(gg_ledger* ledger, const gg_window_end* end, gg_window* out, gg_error* error);

/* Changes the mode from the next window on; the same on all ranks, for their ballots carry it. Loop thread; does not block.
 * GG_FAILED_PRECONDITION: a window is open. GG_INVALID_ARGUMENT: mode, or auto. */
GG_API gg_status_t gg_ledger_set_mode(gg_ledger* ledger, gg_mode mode, gg_error* error);

/* From the next window on the `micro_steps`-th micro-step closes it by count, as a guess: if another one begins before
 * gg_ledger_window_close, it goes on with the window, and one more reduction of each role is declared. 0: none does. The same
 * on all ranks. Loop thread; does not block. GG_FAILED_PRECONDITION: a window is open. GG_INVALID_ARGUMENT: windows are
 * declared. */
GG_API gg_status_t gg_ledger_predict(gg_ledger* ledger, uint32_t micro_steps, gg_error* error);

typedef uint32_t gg_rejection;
enum {
  GG_REJECTION_NONE = 0,
  GG_REJECTION_NO_REPLICAS = 1,      /* window_replica without groups that shard and groups that replicate */
  GG_REJECTION_NO_BUCKETS = 2,       /* no buckets whose size could be set while the job runs */
  GG_REJECTION_HOOK_HELD = 3,        /* the trainer's own communication hook decides what travels */
  GG_REJECTION_NO_WIRE_TYPE = 4,     /* this wire type does not exist here */
  GG_REJECTION_NOTHING_GATHERED = 5, /* no parameters are gathered that could be kept */
  GG_REJECTION_INVALID = 6,          /* values that are not valid, or not known to this library */
  GG_REJECTION_LEFT_ALONE = 7,       /* gradgate is off, or leaves this job alone */
  GG_REJECTION_FIXED = 8             /* this kind of attachment cannot change it while it runs */
};

/* The policy that waits for this rank's answer, after a gg_window with policy_offered; version 0: none. Loop thread; does not
 * block. Since 1.3. */
GG_API gg_status_t gg_ledger_policy_offered(gg_ledger* ledger, gg_policy* out, gg_error* error);

/* Whether this rank can carry it out: GG_REJECTION_NONE lets every ballot from the next on vote for it, anything else is told
 * to the daemon, and the job goes on as before. Once all ranks have voted for it in one ballot it is in force with the next
 * window (gg_window.policy_adopted): the owner then does what it says, on all ranks alike, before that window begins; its
 * enforcement the ledger takes up itself. Loop thread; does not block. GG_FAILED_PRECONDITION: `version` is not the one that
 * waits. GG_INVALID_ARGUMENT: rejection. Since 1.3. */
GG_API gg_status_t gg_ledger_policy_answer(gg_ledger* ledger, uint64_t version, gg_rejection rejection, gg_error* error);

/* The policy in force; version 0: what was given at creation. Loop thread; does not block. Since 1.3. */
GG_API gg_status_t gg_ledger_policy_get(gg_ledger* ledger, gg_policy* out, gg_error* error);

/* Counts a warning and tells the first of each reason through `log`. Loop thread. GG_INVALID_ARGUMENT: NULL. */
GG_API gg_status_t gg_ledger_warn(gg_ledger* ledger, const char* reason, const char* message, gg_error* error);

/* Up to `count` reductions of the open window, or the next one, are forced by the framework. Those that happen are counted
 * apart, and are neither mismatched nor, if declared before their micro-step ends, warned of. Loop thread. GG_INVALID_ARGUMENT:
 * group. */
GG_API gg_status_t gg_ledger_declare_extra(gg_ledger* ledger, gg_group group, uint32_t count, gg_error* error);

typedef uint32_t gg_traffic;
enum { GG_TRAFFIC_GRADIENT = 0, GG_TRAFFIC_OURS = 1, GG_TRAFFIC_OTHER = 2 };

typedef uint32_t gg_outcome;
enum { GG_OUTCOME_OK = 0, GG_OUTCOME_FAILED = 1, GG_OUTCOME_UNKNOWN = 2 };

/* A collective is issued: counts it, and a reduction where it begins one. Returns the time of issue, ns, for
 * gg_ledger_collective_done. Any thread, until gg_ledger_destroy; wait-free. An unknown group, op or traffic, or NULL: nothing
 * is counted, returns 0. */
GG_API int64_t gg_ledger_collective_issued(gg_ledger* ledger, gg_group group, gg_op op, gg_traffic traffic, uint64_t bytes,
                                           uint32_t tensors);

/* A collective is done, or will never be known to be. Any thread, until gg_ledger_destroy; wait-free. */
GG_API void gg_ledger_collective_done(gg_ledger* ledger, gg_group group, gg_op op, gg_traffic traffic, int64_t issue_ns,
                                      gg_outcome outcome);

/* Gradient collectives issued in groups of a role since gg_ledger_micro_step_begin or gg_ledger_late_begin. Any thread; cannot
 * fail; 0 for NULL or an unknown group. */
GG_API uint32_t gg_ledger_issued(const gg_ledger* ledger, gg_group group);

/* As gg_ledger_issued, with the trainer's other collectives. Since 1.3. */
GG_API uint32_t gg_ledger_trainer_issued(const gg_ledger* ledger, gg_group group);

/* Reductions of one role since gg_ledger_create. */
typedef struct gg_role_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t intended;
  uint64_t issued; /* late and extra ones included */
  uint64_t suppressed;
  uint64_t late;
  uint64_t declared_extra;
} gg_role_stats;
#define GG_ROLE_STATS_INIT \
  { sizeof(gg_role_stats), 0, 0, 0, 0, 0, 0 }

/* As gg_stats_get, for a ledger. The sums over roles stand in gg_stats. GG_INVALID_ARGUMENT: NULL, group or op. */
GG_API gg_status_t gg_ledger_role_stats_get(gg_ledger* ledger, gg_group group, gg_role_stats* out, gg_error* error);
GG_API gg_status_t gg_ledger_stats_get(gg_ledger* ledger, gg_stats* out, gg_error* error);
GG_API gg_status_t gg_ledger_collective_stats_get(gg_ledger* ledger, gg_group group, gg_op op, gg_collective_stats* out,
                                                  gg_error* error);

/* Ends the ledger, as gg_session_close does a session. Setup only; blocks at most 0.2 s. GG_FAILED_PRECONDITION: inside a
 * micro-step. Twice is fine. */
GG_API gg_status_t gg_ledger_close(gg_ledger* ledger, gg_error* error);

/* Frees the ledger. Setup only; no other call may be in progress or follow, from any thread. A ledger that was not closed reads
 * to the daemon as a trainer that was lost. */
GG_API void gg_ledger_destroy(gg_ledger* ledger);

#ifdef __cplusplus
}
#endif

#endif /* GRADGATE_GRADGATE_H_ */
