// Tells an abort of the engine as an `error` event before the process dies of it.
//
// Debian's librocksdb 7.8.3 is built with assertions, and one of them (WritableFileWriter) fails when its LOG cannot be
// written: on a full disk the engine aborts where it would otherwise return an error.
#pragma once

#include <string>

namespace duratune {

// `folder` is where the data lies: a file system with less than 1 MiB free is called full.
void report_aborts(const std::string& folder);

}  // namespace duratune
