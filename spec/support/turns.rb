# frozen_string_literal: true

module Support
  # What is held against a clock runs alone. $PROBESCOPE_TURNS is a directory with a lock, "room":
  # each example of RSpec and each test of pytest (tests/conftest.py) holds it shared, and what has
  # to be alone holds it exclusively. Without that directory nobody waits.
  #
  # A uprobe ends what valgrind runs, and `on` refuses uprobes while valgrind runs something. So what
  # runs valgrind, and what sets uprobes in libc, holds another lock, "valgrind", exclusively.
  module Turns
    module_function

    def take(valgrind: false, &block)
      return enter(File::LOCK_SH, &block) unless valgrind

      lock("valgrind", File::LOCK_EX) { enter(File::LOCK_SH, &block) }
    end

    def alone(&block) = enter(File::LOCK_EX, &block)

    # For .ci/run, which waits until a file of that name is there.
    def tell(name)
      directory = ENV.fetch("PROBESCOPE_TURNS", "")
      File.write(File.join(directory, name), "") unless directory.empty?
    end

    # Who waits for the room holds "next", so that nobody who comes later goes in first.
    def enter(how)
      lock("room") do |room|
        lock("next", File::LOCK_EX) { room&.flock(how) }
        yield
      end
    end

    def lock(name, how = nil)
      directory = ENV.fetch("PROBESCOPE_TURNS", "")
      return yield if directory.empty?

      File.open(File.join(directory, name), File::RDWR | File::CREAT) do |file|
        file.flock(how) if how
        yield file
      end
    end
  end
end
