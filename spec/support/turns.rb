# frozen_string_literal: true

module Support
  # What is held against a clock runs alone. $PROBESCOPE_TURNS is a directory with a lock, "room":
  # each example of RSpec and each test of pytest (tests/conftest.py) holds it shared, and what has
  # to be alone holds it exclusively. Without that directory nobody waits.
  module Turns
    module_function

    def take(&block) = enter(File::LOCK_SH, &block)
    def alone(&block) = enter(File::LOCK_EX, &block)

    # For .ci/run, which waits until a file of that name is there.
    def tell(name)
      directory = ENV.fetch("PROBESCOPE_TURNS", "")
      File.write(File.join(directory, name), "") unless directory.empty?
    end

    # Who waits for the room holds "next", so that nobody who comes later goes in first.
    def enter(how)
      directory = ENV.fetch("PROBESCOPE_TURNS", "")
      return yield if directory.empty?

      File.open(File.join(directory, "room"), File::RDWR | File::CREAT) do |room|
        File.open(File.join(directory, "next"), File::RDWR | File::CREAT) do |door|
          door.flock(File::LOCK_EX)
          room.flock(how)
        end
        yield
      end
    end
  end
end
