// Memory and threads that the system refuses, on demand.
#pragma once

namespace headway::test {

/// From now on `count` more allocations succeed and all later ones fail, until `stop_failing`. The same for threads.
void fail_allocations_after(int count);
void fail_threads_after(int count);
void stop_failing();

}  // namespace headway::test
