"""The tables of the TFLite schema, version 3: fields with types and defaults, and enumerations.

Each line of the texts below is a table: its name, then its fields in slot order as `name:type`,
with `=default` unless that is zero. Types are scalars, `string`, `[x]` for vectors, and names of
tables or of enumerations (one signed byte); `_` is a retired slot. A table of operator options
begins with its number in the union `BuiltinOptions`, and its name lacks `Options`; option tables
without fields are listed as `number:name`. Source: the published schema.fbs of TensorFlow Lite.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from firmwright.ir.core import Attr

FILE_IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One field of a table; `default` is the value of an absent scalar."""

    name: str
    slot: int
    type: str
    default: int

    @property
    def default_value(self) -> Attr:
        match self.type:
            case "string":
                return ""
            case "bool":
                return bool(self.default)
            case "f32":
                return float(self.default)
            case name if name in ENUMERATIONS:
                return ENUMERATIONS[name][self.default]
            case name if name.startswith("["):
                return ()
            case _:
                return self.default


Fields = Mapping[str, SchemaField]

_CONTAINER_TABLES = """
Model version:u32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:string
    buffers:[Buffer] metadata_buffer:[i32] metadata:[Metadata] signature_defs:[SignatureDef]
OperatorCode deprecated_builtin_code:i8 custom_code:string version:i32=1 builtin_code:i32
SubGraph tensors:[Tensor] inputs:[i32] outputs:[i32] operators:[Operator] name:string
Tensor shape:[i32] type:TensorType buffer:u32 name:string quantization:QuantizationParameters
    is_variable:bool sparsity:SparsityParameters shape_signature:[i32]
Operator opcode_index:u32 inputs:[i32] outputs:[i32] builtin_options_type:u8
    builtin_options:BuiltinOptions custom_options:[u8] _ mutating_variable_inputs:[bool]
    intermediates:[i32]
QuantizationParameters _ _ scale:[f32] zero_point:[i64] _ _ quantized_dimension:i32
Buffer data:[u8] offset:u64 size:u64
Metadata name:string buffer:u32
SignatureDef inputs:[TensorMap] outputs:[TensorMap] signature_key:string _ subgraph_index:u32
TensorMap name:string tensor_index:u32
SparsityParameters
"""

_OPTION_TABLES = """
1 Conv2D padding:Padding stride_w:i32 stride_h:i32 fused_activation_function:Activation
    dilation_w_factor:i32=1 dilation_h_factor:i32=1 quantized_bias_type:TensorType
2 DepthwiseConv2D padding:Padding stride_w:i32 stride_h:i32 depth_multiplier:i32
    fused_activation_function:Activation dilation_w_factor:i32=1 dilation_h_factor:i32=1
3 ConcatEmbeddings num_channels:i32 num_columns_per_channel:[i32] embedding_dim_per_channel:[i32]
4 LSHProjection type:LSHProjection
5 Pool2D padding:Padding stride_w:i32 stride_h:i32 filter_width:i32 filter_height:i32
    fused_activation_function:Activation
6 SVDF rank:i32 fused_activation_function:Activation asymmetric_quantize_inputs:bool
7 RNN fused_activation_function:Activation asymmetric_quantize_inputs:bool
8 FullyConnected fused_activation_function:Activation weights_format:WeightsFormat
    keep_num_dims:bool asymmetric_quantize_inputs:bool quantized_bias_type:TensorType
9 Softmax beta:f32
10 Concatenation axis:i32 fused_activation_function:Activation
11 Add fused_activation_function:Activation pot_scale_int16:bool=1
12 L2Norm fused_activation_function:Activation
13 LocalResponseNormalization radius:i32 bias:f32 alpha:f32 beta:f32
14 LSTM fused_activation_function:Activation cell_clip:f32 proj_clip:f32 kernel_type:LSTMKernel
    asymmetric_quantize_inputs:bool
15 ResizeBilinear _ _ align_corners:bool half_pixel_centers:bool
16 Call subgraph:u32
17 Reshape new_shape:[i32]
18 SkipGram ngram_size:i32 max_skip_size:i32 include_all_ngrams:bool
19 SpaceToDepth block_size:i32
20 EmbeddingLookupSparse combiner:Combiner
21 Mul fused_activation_function:Activation
23 Gather axis:i32 batch_dims:i32
27 Reducer keep_dims:bool
28 Sub fused_activation_function:Activation pot_scale_int16:bool=1
29 Div fused_activation_function:Activation
30 Squeeze squeeze_dims:[i32]
31 SequenceRNN time_major:bool fused_activation_function:Activation asymmetric_quantize_inputs:bool
32 StridedSlice begin_mask:i32 end_mask:i32 ellipsis_mask:i32 new_axis_mask:i32 shrink_axis_mask:i32
    offset:bool
35 Split num_splits:i32
37 Cast in_data_type:TensorType out_data_type:TensorType
40 ArgMax output_type:TensorType
49 TransposeConv padding:Padding stride_w:i32 stride_h:i32 fused_activation_function:Activation
    quantized_bias_type:TensorType
50 SparseToDense validate_indices:bool
55 Shape out_type:TensorType
57 ArgMin output_type:TensorType
58 FakeQuant min:f32 max:f32 num_bits:i32 narrow_range:bool
59 Pack values_count:i32 axis:i32
61 OneHot axis:i32
64 Unpack num:i32 axis:i32
69 BidirectionalSequenceLSTM fused_activation_function:Activation cell_clip:f32 proj_clip:f32
    merge_outputs:bool time_major:bool=1 asymmetric_quantize_inputs:bool
70 BidirectionalSequenceRNN time_major:bool fused_activation_function:Activation merge_outputs:bool
    asymmetric_quantize_inputs:bool
71 UnidirectionalSequenceLSTM fused_activation_function:Activation cell_clip:f32 proj_clip:f32
    time_major:bool asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool
74 ResizeNearestNeighbor align_corners:bool half_pixel_centers:bool
75 LeakyRelu alpha:f32
77 MirrorPad mode:MirrorPadMode
79 SplitV num_splits:i32
80 Unique idx_out_type:TensorType=2
87 ReverseSequence seq_dim:i32 batch_dim:i32
92 If then_subgraph_index:i32 else_subgraph_index:i32
93 While cond_subgraph_index:i32 body_subgraph_index:i32
94 DepthToSpace block_size:i32
101 BatchMatMul adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool
102 Cumsum exclusive:bool reverse:bool
103 CallOnce init_subgraph_index:i32
106 Conv3D padding:Padding stride_d:i32 stride_w:i32 stride_h:i32
    fused_activation_function:Activation dilation_d_factor:i32=1 dilation_w_factor:i32=1
    dilation_h_factor:i32=1
107 Hashtable table_id:i32 key_dtype:TensorType value_dtype:TensorType
111 VarHandle container:string shared_name:string
114 Random seed:i64 seed2:i64
115 Bucketize boundaries:[f32]
116 Gelu approximate:bool
"""

_EMPTY_TABLES = """
22:Pad 24:BatchToSpaceND 25:SpaceToBatchND 26:Transpose 33:Exp 34:TopKV2 36:LogSoftmax 38:Dequantize
39:MaximumMinimum 41:Less 42:Neg 43:PadV2 44:Greater 45:GreaterEqual 46:LessEqual 47:Select 48:Slice
51:Tile 52:ExpandDims 53:Equal 54:NotEqual 56:Pow 60:LogicalOr 62:LogicalAnd 63:LogicalNot
65:FloorDiv 66:Square 67:ZerosLike 68:Fill 72:FloorMod 73:Range 76:SquaredDifference 78:Abs
81:ReverseV2 82:AddN 83:GatherNd 84:Cos 85:Where 86:Rank 88:MatrixDiag 89:Quantize 90:MatrixSetDiag
91:HardSwish 95:NonMaxSuppressionV4 96:NonMaxSuppressionV5 97:ScatterNd 98:SelectV2 99:Densify
100:SegmentSum 104:BroadcastTo 105:Rfft2d 108:HashtableFind 109:HashtableImport 110:HashtableSize
112:ReadVariable 113:AssignVariable 117:DynamicUpdateSlice 118:UnsortedSegmentProd
119:UnsortedSegmentMax 120:UnsortedSegmentMin 121:UnsortedSegmentSum 122:ATan2 123:Sign 124:Bitcast
125:BitwiseXor 126:RightShift
"""

_OPERATORS = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6
RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM
EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND
TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN
EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX
MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV
SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT
REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV
REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU
SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU
REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS
HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE
READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM
MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX
UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT
STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM
STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM
STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM
STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT
STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT
STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA
STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER
STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE
STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
"""

_OPTIONS_OF_OTHER_NAME = {
    "Pool2D": "AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D",
    "L2Norm": "L2_NORMALIZATION",
    "SequenceRNN": "UNIDIRECTIONAL_SEQUENCE_RNN",
    "MaximumMinimum": "MAXIMUM MINIMUM",
    "Reducer": "MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL",
    "Conv3D": "CONV_3D_TRANSPOSE",
    "Random": "RANDOM_STANDARD_NORMAL RANDOM_UNIFORM MULTINOMIAL",
}
"""Options table -> operators with names that differ from the table's."""

_TENSOR_TYPES = """
float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64
resource variant uint32 uint16 int4 bfloat16
"""

# Value k of an enumeration is entry k. Element types are spelled as base/dtypes.py spells them.
ENUMERATIONS: Mapping[str, tuple[str, ...]] = {
    "TensorType": tuple(_TENSOR_TYPES.split()),
    "Activation": ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"),
    "Padding": ("SAME", "VALID"),
    "MirrorPadMode": ("REFLECT", "SYMMETRIC"),
    "WeightsFormat": ("DEFAULT", "SHUFFLED4x16INT8"),
    "LSTMKernel": ("FULL", "BASIC"),
    "LSHProjection": ("UNKNOWN", "SPARSE", "DENSE"),
    "Combiner": ("SUM", "MEAN", "SQRTN"),
}

# Bits of one element, for the types whose constants have a size given by their shape.
ELEMENT_BITS: Mapping[str, int] = {
    "bool": 8, "int4": 4, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "float16": 16,
    "bfloat16": 16, "int32": 32, "uint32": 32, "float32": 32, "int64": 64, "uint64": 64,
    "float64": 64, "complex64": 64, "complex128": 128,
}  # fmt: skip


def _fields(words: list[str]) -> Fields:
    fields = {}
    for slot, word in enumerate(words):
        if word != "_":
            name, _, kind = word.partition(":")
            kind, _, default = kind.partition("=")
            fields[name] = SchemaField(name, slot, kind, int(default or 0))
    return fields


def _entries(text: str) -> list[list[str]]:
    """Return the words of each table; a line that begins with a blank continues a table."""
    return [entry.split() for entry in text.strip().replace("\n    ", " ").splitlines()]


_OPTION_ENTRIES = (
    *_entries(_OPTION_TABLES),
    *(entry.split(":") for entry in _EMPTY_TABLES.split()),
)
TABLES: Mapping[str, Fields] = {
    **{words[0]: _fields(words[1:]) for words in _entries(_CONTAINER_TABLES)},
    **{f"{words[1]}Options": _fields(words[2:]) for words in _OPTION_ENTRIES},
}
OPTION_TABLES: Mapping[int, str] = {int(n): f"{name}Options" for n, name, *_ in _OPTION_ENTRIES}
OPERATORS: tuple[str, ...] = tuple(_OPERATORS.split())


def _options_by_operator() -> dict[str, str]:
    by_plain_name = {name.lower(): name for name in OPTION_TABLES.values()}
    plain_names = {op: f"{op.replace('_', '').lower()}options" for op in OPERATORS}
    named = {op: by_plain_name[n] for op, n in plain_names.items() if n in by_plain_name}
    rows = _OPTIONS_OF_OTHER_NAME.items()
    return {op: f"{table}Options" for table, ops in rows for op in ops.split()} | named


OPTIONS_OF_OPERATOR: Mapping[str, str] = _options_by_operator()
