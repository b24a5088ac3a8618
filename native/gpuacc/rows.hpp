// Kernels that compute rows, as lowerings of several files use them.

#ifndef GPUACC_ROWS_HPP
#define GPUACC_ROWS_HPP

#include "gpuacc/lowering.hpp"

namespace gpuacc {

/// A tensor as rows of `count` elements that are `inner` elements apart; `outer * inner` rows.
struct Rows {
  Value value;
  int64_t outer = 1, count = 1, inner = 1;
  int64_t rows() const { return outer * inner; }
};

/// The rows along an axis.
Rows along(const Value& value, int64_t axis);

/// Rows over some axes; adjacent ones are read where they are, others are moved to the end.
struct ReducedRows {
  Rows rows;
  std::vector<size_t> order;  // of the axes that were moved; empty: none was

  /// A value with the shape of the rows, with the axes in their order before.
  Value restored(Plan& plan, const Value& value) const;
};
ReducedRows over(Plan& plan, const Value& value, const std::vector<bool>& axes);

/// Which axes of the first operand an attribute names; all if it is empty.
std::vector<bool> axes_of(const ipr::Layer& layer, const char* name);

/// The operation of a Reduce or Mean layer: "SUM".
std::string_view reduction_of(const ipr::Layer& layer);

/// The body of a kernel for each row. In it, EACH loops over the elements r, X(r) is one, SUM_ALL, MAX_ALL and MIN_ALL
/// combine a variable of the work items of a row, and AT(r) is the index of an element.
struct RowKernel {
  RowKernel(std::string code, std::string declarations = "", std::vector<Argument> more = {}, bool alone = false,
            std::string functions = "")
      : code(std::move(code)), declarations(std::move(declarations)), more(std::move(more)), alone(alone),
        functions(std::move(functions)) {}
  std::string code;
  std::string declarations;    // of further parameters
  std::vector<Argument> more;  // their values
  bool alone;                  // one work item computes a row
  std::string functions;       // that the code calls
};

void launch_rows(Plan& plan, const std::string& name, const Rows& rows, const Value& out, const RowKernel& kernel);

}  // namespace gpuacc

#endif  // GPUACC_ROWS_HPP
