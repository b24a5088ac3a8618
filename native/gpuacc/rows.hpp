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

/// Launch a kernel with the body `code` for each row. In it, EACH loops over the elements r, X(r) is one, SUM_ALL,
/// MAX_ALL and MIN_ALL combine a variable of the work items of a row, and AT(r) is the index of an element.
/// `declarations` and `more` are further parameters. `alone`: one work item computes a row.
void launch_rows(Plan& plan, const std::string& name, const Rows& rows, const Value& out, const std::string& code,
                 const std::string& declarations = "", const std::vector<Argument>& more = {}, bool alone = false);

}  // namespace gpuacc

#endif  // GPUACC_ROWS_HPP
