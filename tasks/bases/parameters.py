"""Types of parameters that several tasks have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Precision = Literal["float32", "bfloat16", "float16"]  # of a model's weights
