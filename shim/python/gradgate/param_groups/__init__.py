"""Parameter groups of optimizers, merged where their settings are the same, and checkpoints from before, regrouped.

optimizer = torch.optim.AdamW(gradgate.param_groups.merge(groups), fused=True)
"""

from .audit import Audit, audit
from .dcp import dcp_layout
from .lightning import regroup_checkpoint
from .merging import Groups, merge
from .optimizers import merge_optimizer
from .regroup import regroup_state_dict
from .report import Report

__all__ = ["Audit", "Groups", "Report", "audit", "dcp_layout", "merge", "merge_optimizer", "regroup_checkpoint", "regroup_state_dict"]
