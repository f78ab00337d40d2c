"""One process or several: torchrun's environment, in the form of Lightning Fabric."""

import logging
import os
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch
    from lightning_fabric import Fabric
    from torch import Tensor


def world_size() -> int:
    """Number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", 1))


def make_fabric(device: "torch.device") -> "Fabric":
    """Fabric on one device or, under torchrun, on one device per process (distributed data
    parallel).
    """
    from lightning_fabric import Fabric

    # Its messages below a warning advise to compute less exactly.
    logging.getLogger("lightning_fabric.utilities.rank_zero").setLevel(logging.WARNING)
    accelerator = "cuda" if device.type == "cuda" else "cpu"
    if world_size() == 1:
        fabric = Fabric(accelerator=accelerator, devices=1)
    else:
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))
        nodes = world_size() // local
        fabric = Fabric(accelerator=accelerator, devices=local, num_nodes=nodes, strategy="ddp")
    fabric.launch()
    return fabric


def mean_over_ranks(fabric: "Fabric", value: float) -> float:
    """Mean of a number over all processes; every process must call this."""
    import torch

    shared = torch.tensor(value, dtype=torch.float64, device=fabric.device)
    return float(cast("Tensor", fabric.all_reduce(shared, reduce_op="mean")))


def gather_over_ranks(fabric: "Fabric", value: Any) -> list[Any]:
    """A value of each process, in the order of ranks; every process must call this."""
    if fabric.world_size == 1:
        return [value]
    import torch

    values: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(values, value)
    return values
