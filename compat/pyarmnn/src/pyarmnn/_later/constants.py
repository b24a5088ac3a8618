"""Enumerations, and members of enumerations, that later releases added."""

from typing import Final

ActivationFunction_Gelu: Final = 12

BinaryOperation_Add: Final = 0
BinaryOperation_Div: Final = 1
BinaryOperation_Maximum: Final = 2
BinaryOperation_Minimum: Final = 3
BinaryOperation_Mul: Final = 4
BinaryOperation_Sub: Final = 5
BinaryOperation_SqDiff: Final = 6
BinaryOperation_Power: Final = 7

DataLayout_NDHWC: Final = 3
DataLayout_NCDHW: Final = 4

LogicalBinaryOperation_LogicalAnd: Final = 0
LogicalBinaryOperation_LogicalOr: Final = 1

PaddingMode_Constant: Final = 0
PaddingMode_Reflect: Final = 1
PaddingMode_Symmetric: Final = 2

ReduceOperation_Sum: Final = 0
ReduceOperation_Max: Final = 1
ReduceOperation_Mean: Final = 2
ReduceOperation_Min: Final = 3
ReduceOperation_Prod: Final = 4

ScatterNdFunction_Update: Final = 0
ScatterNdFunction_Add: Final = 1
ScatterNdFunction_Sub: Final = 2
ScatterNdFunction_Max: Final = 3
ScatterNdFunction_Min: Final = 4
ScatterNdFunction_Mul: Final = 5

UnaryOperation_LogicalNot: Final = 5
UnaryOperation_Log: Final = 6
UnaryOperation_Sin: Final = 7
UnaryOperation_Ceil: Final = 8

__all__ = [name for name in globals() if "_" in name[1:] and name[0].isupper()]
