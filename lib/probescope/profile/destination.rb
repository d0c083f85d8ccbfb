# frozen_string_literal: true

require "securerandom"
require_relative "../tracing/error"
require_relative "../tracing/figure"
require_relative "collapsed"
require_relative "page"
require_relative "pprof_writer"
require_relative "speedscope"

module Probescope
  module Profile
    # The file of a recording. Its ending is the format. The file has its name only when it is complete:
    # it is written beside that, under a name that no other command has. A checkpoint of a long recording
    # is FILE.part.
    class Destination
      FORMATS = {".html" => Page, ".pb.gz" => PprofWriter, ".speedscope.json" => Speedscope,
                 ".collapsed" => Collapsed}.freeze
      ENDINGS = FORMATS.keys.join(", ").freeze
      # The owner alone: a recording has paths and routes.
      MODE = 0o600

      # Counts bytes.
      class Count
        attr_reader :bytes

        def write(*texts) = @bytes = @bytes.to_i + texts.sum(&:bytesize)
      end

      FOLDER = "-o a file in a folder that you may write to"
      # Errors of a file system on which a file has one name only, such as FAT.
      NO_LINKS = [Errno::EPERM, Errno::ENOTSUP, Errno::ENOSYS].freeze

      attr_reader :path
      # Whether FILE.part may be a checkpoint of this recording.
      attr_writer :begun_checkpoint

      # force: whether an existing file is replaced. formats: those that the command can write. Raises
      # Tracing::Misused.
      def initialize(path, force: false, formats: FORMATS)
        @path = path
        @force = force
        @formats = formats
        @writer = formats.find { |ending, _| path.end_with?(ending) }&.last
        @token = SecureRandom.hex(4)
        check
      end

      def part = "#{@path}.part"

      # Writes a recording. kind: for a format with one kind. Returns the number of bytes. Raises
      # Tracing::Error when there is no room, or when the file cannot have its name.
      def write(recording, kind: 0) = save { |io| @writer.write(recording, io, kind: kind) }

      # The same with what the block writes.
      def save(&block)
        create(unfinished, &block)
        bytes = File.size(unfinished)
        publish
        remove(part) if @force || @begun_checkpoint
        bytes
      rescue SystemCallError => e
        raise failed(e, &block)
      end

      # Writes FILE.part, a pprof file whatever the format.
      def checkpoint(recording)
        create(unfinished_checkpoint) { |io| PprofWriter.write(recording, io) }
        File.rename(unfinished_checkpoint, part)
      end

      # Called after a #checkpoint in another process.
      def checkpoint_written
        @checkpoint_at = File.mtime(part)
      rescue SystemCallError # somebody has removed it
        nil
      end

      # For after a #checkpoint that was killed.
      def remove_unfinished_checkpoint = remove(unfinished_checkpoint)

      private

      def unfinished = "#{@path}.#{@token}.new"
      def unfinished_checkpoint = "#{part}.#{@token}.new"

      def misused(message, next_step) = raise(Tracing::Misused.new(message, next_step))

      def check
        unless @writer
          misused("#{@path.inspect} has no format's ending",
                  "-o FILE with the ending #{@formats.keys.join(", ")}")
        end
        refuse_existing unless @force
        try
      end

      def refuse_existing
        misused("#{@path} exists", "another name, or --force, which replaces it") if taken?(@path)
        return unless taken?(part)

        misused("#{part} is what a recording that was killed has left",
                "probescope convert #{part}, or --force, which removes it")
      end

      # Raises Misused where the folder does not take the files.
      def try
        raise Errno::EISDIR if File.directory?(@path)

        create(unfinished_checkpoint) { nil }
        remove(unfinished_checkpoint)
      rescue SystemCallError => e
        misused("cannot write #{@path.inspect}: #{reason(e)}", FOLDER)
      end

      # Also for a link to nothing.
      def taken?(name) = File.exist?(name) || File.symlink?(name)

      # Leaves nothing when it fails.
      def create(name)
        whole = false
        File.open(name, File::WRONLY | File::CREAT | File::EXCL | File::BINARY, MODE) do |file|
          yield file
          file.fsync
        end
        whole = true
      ensure
        remove(name) unless whole
      end

      # Gives the complete file its name. A file that has got that name meanwhile stays, unless it may be
      # replaced.
      def publish
        return File.rename(unfinished, @path) if @force || !linked?

        remove(unfinished)
      rescue SystemCallError => e
        raise Tracing::Error.new("cannot write #{@path}: #{reason(e)}; the complete file is #{unfinished}",
                                 "mv #{unfinished} to another name")
      end

      # False where a file has one name only.
      def linked?
        File.link(unfinished, @path)
        true
      rescue *NO_LINKS
        raise Errno::EEXIST if taken?(@path)

        false
      end

      def remove(name)
        File.unlink(name)
      rescue SystemCallError
        nil
      end

      def reason(error) = error.message.sub(/ @ .*/m, "")

      def failed(error)
        count = Count.new
        yield count
        time = @checkpoint_at&.getlocal&.strftime("%H:%M:%S")
        rest = "; #{part} is a checkpoint of #{time}" if time
        Tracing::Error.new("cannot write #{@path}, which needs #{Tracing::Figure.bytes(count.bytes)}: " \
                           "#{reason(error)}#{rest}",
                           "-o a file on a disk with room")
      end
    end
  end
end
