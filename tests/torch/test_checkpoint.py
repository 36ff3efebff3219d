"""Checkpoints of an attachment, on real ranks: state_dict and load_state_dict in the middle of a window, and through DCP."""

import rows

test_row = rows.tests(
    __file__,
    "checkpoint_rows",
    "checkpoint_kinds_rows",
    "checkpoint_guard_rows",
    "checkpoint_refused_rows",
    "checkpoint_world_rows",
    "checkpoint_share_rows",
)
