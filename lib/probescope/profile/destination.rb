# frozen_string_literal: true

require_relative "../tracing/error"
require_relative "../tracing/figure"
require_relative "collapsed"
require_relative "page"
require_relative "pprof_writer"
require_relative "speedscope"

module Probescope
  module Profile
    # The file of a recording. Its ending is the format. The file has its name only when it is complete:
    # it is written beside that, and renamed. A checkpoint of a long recording is FILE.part.
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

      attr_reader :path

      # force: whether an existing file is replaced. formats: those that the command can write. Raises
      # Tracing::Misused.
      def initialize(path, force: false, formats: FORMATS)
        @path = path
        @force = force
        @formats = formats
        @writer = formats.find { |ending, _| path.end_with?(ending) }&.last
        check
      end

      def part = "#{@path}.part"

      # Writes a recording. kind: for a format with one kind. Returns the number of bytes. Raises
      # Tracing::Error when there is no room.
      def write(recording, kind: 0) = save { |io| @writer.write(recording, io, kind: kind) }

      # The same with what the block writes.
      def save(&block)
        replace(@path, &block)
        File.unlink(part) if File.exist?(part)
        File.size(@path)
      rescue SystemCallError => e
        raise failed(e, &block)
      end

      # Writes FILE.part, a pprof file whatever the format.
      def checkpoint(recording)
        replace(part) { |io| PprofWriter.write(recording, io) }
      end

      # When the last checkpoint was written.
      attr_writer :checkpoint_at

      # After a write that was killed.
      def remove_unfinished = File.exist?(unfinished) && File.delete(unfinished)

      private

      def unfinished = "#{@path}.new"

      def misused(message, next_step) = raise(Tracing::Misused.new(message, next_step))

      def check
        unless @writer
          misused("#{@path.inspect} has no format's ending",
                  "-o FILE with the ending #{@formats.keys.join(", ")}")
        end
        folder = File.dirname(@path)
        unless File.directory?(folder) && File.writable?(folder) && !File.directory?(@path)
          misused("cannot write #{@path.inspect}", "-o a file in a folder that you may write to")
        end
        return if @force

        misused("#{@path} exists", "another name, or --force, which replaces it") if File.exist?(@path)
        return unless File.exist?(part)

        misused("#{part} is what a recording that was killed has left",
                "probescope convert #{part}, or --force, which removes it")
      end

      def replace(name)
        remove_unfinished
        File.open(unfinished, File::WRONLY | File::CREAT | File::EXCL | File::BINARY, MODE) do |file|
          yield file
          file.fsync
        end
        File.rename(unfinished, name)
      rescue SystemCallError
        remove_unfinished
        raise
      end

      def failed(error)
        count = Count.new
        yield count
        time = @checkpoint_at&.getlocal&.strftime("%H:%M:%S")
        rest = "; #{part} is a checkpoint of #{time}" if time
        Tracing::Error.new("cannot write #{@path}, which needs #{Tracing::Figure.bytes(count.bytes)}: " \
                           "#{error.message.sub(/ @ .*/m, "")}#{rest}",
                           "-o a file on a disk with room")
      end
    end
  end
end
