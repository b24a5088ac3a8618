"""What releases of Arm NN after 20.08 added to the interface, up to 24.11; PyArmNN 22.0.0 has none of it.

Numbers of enumerations are those of the later releases. `DataType_Signed64` is an exception, as the later releases
number all data types otherwise; it is in `pyarmnn._types`.
"""
