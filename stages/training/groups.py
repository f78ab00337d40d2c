"""Parameters that learn apart from the others, because the layer that has them says so."""

from collections.abc import Sequence

from torch import nn

from stages.methods.method import ParameterGroup
from stages.models.layers.sublayer import LearnsApart


def set_apart(learnt: Sequence[ParameterGroup], model: nn.Module) -> list[ParameterGroup]:
    """The groups without what layers of the model learn apart, and then groups of that."""
    asked = [part.apart() for part in model.modules() if isinstance(part, LearnsApart)]
    apart = {id(parameter) for one in asked for parameter in one.parameters}
    common = [group._replace(parameters=[p for p in group.parameters if id(p) not in apart]) for group in learnt]
    return common + [
        ParameterGroup(both, group.lr_factor, one.lr, apart=True)
        for group in learnt
        for one in asked
        if (both := _in_both(group.parameters, one.parameters))
    ]


def _in_both(some: Sequence[nn.Parameter], others: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    wanted = {id(parameter) for parameter in others}
    return [parameter for parameter in some if id(parameter) in wanted]


def clipped_together(model: nn.Module, groups: Sequence[ParameterGroup]) -> list[list[nn.Parameter]]:
    """The parameters whose gradients share one norm: all that do not learn apart, and each group of those that do."""
    alone = [group.parameters for group in groups if group.apart]
    apart = {id(parameter) for parameters in alone for parameter in parameters}
    return [[parameter for parameter in model.parameters() if id(parameter) not in apart], *alone]
