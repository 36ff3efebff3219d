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
#define GG_ABI_MINOR 0

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
enum { GG_MODE_DEFAULT = 0 /* window */, GG_MODE_EVERY_MICRO_STEP = 1, GG_MODE_WINDOW = 2 };

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
  const char* job_name;     /* NULL: GRADGATE_JOB, TORCHELASTIC_RUN_ID, SLURM_JOB_NAME, else "job" */
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
} gg_window;
#define GG_WINDOW_INIT \
  { sizeof(gg_window), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

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
} gg_stats;
#define GG_STATS_INIT \
  { sizeof(gg_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

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

/* Number of buckets the tensors were laid out in. Any thread; 0 for NULL. */
GG_API uint32_t gg_session_bucket_count(const gg_session* session);

/* Ends the session: tells the daemon goodbye; an open window is discarded and counted as a warning. No collective.
 * Setup only; blocks at most 0.2 s, to tell the other ranks. GG_FAILED_PRECONDITION: inside a micro-step. Twice is fine. */
GG_API gg_status_t gg_session_close(gg_session* session, gg_error* error);

/* Frees the session and the gradients it allocated. Setup only; waits for collectives in flight up to deadline_ns. A session
 * that was not closed reads to the daemon as a trainer that was lost. */
GG_API void gg_session_destroy(gg_session* session);

#ifdef __cplusplus
}
#endif

#endif /* GRADGATE_GRADGATE_H_ */
