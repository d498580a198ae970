"""Events as bytes, by msgspec: msgpack of their fields, columns as their raw numbers.

A decoded event is equal to the encoded one, entry by entry; its columns cannot be written.
"""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import numpy as np

from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.kernel import events as e

AnyEvent = (
    e.JobStarted
    | e.ExecutionsFinished
    | e.ExecutionsDeploying
    | e.ExecutionsFailed
    | e.ExecutionsCancelled
    | e.ExecutionsRejected
    | e.PartitionsLost
    | e.OutputsLost
    | e.SizesLoaded
    | e.SourceNarrowed
    | e.PartitionsMerged
    | e.TimerFired
    | e.ExecutorChanged
    | e.ExecutorsChanged
    | e.WorkersOccupied
    | e.SlotsFreed
    | e.NodeBlocked
    | e.SinksCommitted
    | e.SinksFailed
    | e.CancelRequested
)


def _raw(value: Any) -> Any:
    """Of an array its numbers, and what they are."""
    if isinstance(value, np.ndarray):
        return value.tobytes() + value.dtype.char.encode()
    if isinstance(value, np.generic):
        return value.item()
    return list(value)  # a sequence whose entries are made when somebody looks


def _column(wanted: Any, data: bytes) -> Any:
    written, (_, dtype) = np.dtype(data[-1:].decode()), typing.get_args(wanted)
    column = np.frombuffer(data, written, (len(data) - 1) // written.itemsize)
    return column.astype(typing.get_args(dtype)[0], copy=False)


_encoder = msgspec.msgpack.Encoder(enc_hook=_raw)
_decoder = msgspec.msgpack.Decoder(AnyEvent, dec_hook=_column)
_inputs = msgspec.msgpack.Decoder(Inputs)
FINISHED, DEPLOYING = e.ExecutionsFinished.__name__, e.ExecutionsDeploying.__name__


def encode(event: e.Event) -> tuple[str, bytes]:
    """Returns the kind of event, and all of it."""
    return type(event).__name__, _encoder.encode(event)


def decode(data: bytes) -> e.Event:
    """Raises ValueError for what is no event."""
    return _decoder.decode(data)


def dump(inputs: Inputs) -> bytes:
    return _encoder.encode(inputs)


def load(data: bytes) -> Inputs:
    """Raises ValueError for anything else."""
    return _inputs.decode(data)
