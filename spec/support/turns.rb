# frozen_string_literal: true

module Support
  # One example after the other waits here while something on this machine has to be alone: `alone`
  # in bin/test. tests/conftest.py has the same for pytest.
  module Turns
    module_function

    # Who waits for the room holds "next", so that nobody who comes later goes in first.
    def take
      directory = ENV.fetch("PROBESCOPE_TURNS", "")
      return yield if directory.empty?

      File.open(File.join(directory, "room"), File::RDWR | File::CREAT) do |room|
        File.open(File.join(directory, "next"), File::RDWR | File::CREAT) do |door|
          door.flock(File::LOCK_EX)
          room.flock(File::LOCK_SH)
        end
        yield
      end
    end
  end
end
