"""Every row of CASES.md gives the right value, or a refusal in words, through the public calls alone.

In test_refusals: T7, N6, and what else ends a job; in test_daemon: N9, N10. Elsewhere: T15 (Megatron-LM), T17 and T48 (DeepSpeed),
T40 and T41 (parameter groups), N5 (observed windows; its kind is a late reduction through a hook that sums, in seen_rows).
"""

import rows

test_row = rows.tests(
    __file__,
    "moment_rows",
    "wrapper_rows",
    "partial_rows",
    "window_rows",
    "ranks_rows",
    "step_rows",
    "seen_rows",
    "late_rows",
    "counted_rows",
    "deferred_rows",
    "kinds_rows",
)
