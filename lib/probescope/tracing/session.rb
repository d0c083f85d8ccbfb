# frozen_string_literal: true

require "set"
require_relative "bpftrace"
require_relative "bpftrace_process"
require_relative "error"
require_relative "library"
require_relative "links"
require_relative "member"
require_relative "probed_process"
require_relative "reader"
require_relative "refused"
require_relative "selection"
require_relative "survey"

module Probescope
  module Tracing
    # The processes that are traced together, and bpftrace on them. A command has a Session for one
    # interval (Measurement), the bridge has one for as long as it runs (Otel::Supervisor). In this
    # order:
    #
    #   #choose, or #follow   finds processes (Selection); each of them becomes a member
    #   #start                starts bpftrace on all members
    #   #attached?            becomes true; then #link_apart? tells whether to #start once more
    #   #interrupt            lets bpftrace print its maps, and end
    #   #discard              kills bpftrace, however far it is
    #
    # A single process without traced children is traced by `bpftrace -p`. Otherwise bpftrace is
    # given a folder of links to the library files (Links), and switches on every process that maps
    # one of them. That is the case for several processes, for later ones, and for a process whose
    # library was deleted on disk. What is known of a process comes from its own memory (semaphores)
    # and not from bpftrace's messages, which differ by version.
    class Session
      # Seconds with raised semaphores, where the kernel hides bpftrace's wait.
      HIDDEN_LIMIT = 2.0

      # members: Members; those that have ended stay until #follow. bpftraces: the
      # BpftraceProcesses that run. covered: identities of the libraries on which they were started.
      attr_reader :members, :bpftraces, :covered

      # order: Order. probes: names of the traced probes. numbered: whether the program prints
      # bpftrace's numbers of processes also where it traces only one. threads: whether the program
      # tells threads apart by bpftrace's numbers. waits: whether the trace tells of threads that
      # sleep. elsewhere: whether the program needs events that come while other processes are on the
      # CPU. event: the Event that the program counts, or nil. The block takes each Error because of
      # which a process is not traced, and the member if it was one.
      def initialize(order, probes, numbered: false, threads: false, waits: false, elsewhere: false,
                     event: nil, &refused)
        @order = order
        @probes = probes
        @numbered = numbered
        @threads = threads
        @waits = waits
        @elsewhere = elsewhere
        @event = event
        @selection = Selection.new(order, &refused)
        @refused = refused || ->(error, _) { notes << error.in_one_line }
        @users = Library::TRUSTED_USERS unless @selection.single? || order.trust
        @wanted = Library.arguments(probes)
        @members = []
        @bpftraces = []
        @covered = []
        @apart = [] # ids of library files, see #link_apart?
      end

      # Notes for the user, of a Session without a block.
      def notes = @selection.notes

      # Takes the processes of the order as they are now. Those that do not serve a probe are left
      # out. Raises Error when no process is left, or when one from the command line cannot be
      # traced.
      def choose
        refused = []
        @members = @selection.processes.filter_map do |process|
          member(process)
        rescue Error => e
          refused << e
          nil
        end
        raise refused.first if members.empty? && refused.any?

        refused.each { |error| @refused.call(error, nil) }
        @alone = alone_with?(members.first&.process)
      end

      # Raises Error when a process from the command line cannot be traced. For a Session that does
      # not choose.
      def check_processes = @selection.asked_for

      # Takes in new processes: those for whose Member the block returns true. pids: by default
      # the children of those that were chosen.
      def arrivals(pids = @selection.children, except: [])
        @selection.look(pids - members.map(&:pid) - except) do |process|
          one = member(process)
          yield(one) && members << one
        end
      end

      # Drops the members that have ended or are not meant any more, and yields :left with each.
      # Then takes in new processes, of all that the order means; yields :came with each, as
      # #arrivals does.
      def follow
        meant = @selection.meant.to_set
        gone = members.reject { |one| meant.include?(one.pid) && one.alive? }
        gone.each do |one|
          drop(one, one.refused)
          @refused.call(one.refused, nil) if one.refused
          yield(:left, one)
        end
        arrivals(meant.sort) { |one| yield(:came, one) }
      end

      # Does not trace this member any more. error: not for some time, because of this Error.
      def drop(one, error = nil)
        members.delete(one)
        @selection.set_aside(one.pid, error) if error
      end

      # Whether processes may still come that #arrivals takes in.
      def children_may_come? = @selection.children_may_come?

      def alive = members.select(&:alive?)

      # True when `bpftrace -p` traces a single process.
      def alone? = @alone

      # Starts bpftrace anew, with a process for each of these programs. Starts none if no member is
      # left.
      def start(programs)
        bpftraces.each(&:discard)
        @raised_at = @interrupted_at = nil
        @alone = alone_with?(members.first&.process)
        options, library = @alone ? [["-p", members.first.pid.to_s], "*"] : [[], linked]
        @covered = members.map { |one| identity(one) }.uniq
        programs = [] if members.empty? # no library can be read any more
        @bpftraces = programs.map { |path| BpftraceProcess.new(@order, path, options, library) }
      end

      # For the loop that reads them.
      def streams = bpftraces.flat_map(&:streams)

      # True when bpftrace has ended, and all of its output has been read.
      def ended? = bpftraces.all?(&:status) && streams.empty?

      # Whether all probes are attached. A time limit is used where the kernel does not tell that
      # bpftrace waits for events.
      def attached?
        others = bpftraces.reject(&:attached?)
        return false unless others.all?(&:hidden?) && alive.any?(&:raised?)

        @raised_at ||= now
        others.empty? || now - @raised_at > HIDDEN_LIMIT
      end

      # Living members that bpftrace, once it is attached, does not reach.
      def unreached = alive.reject(&:raised?).select(&:alive?)

      # Whether a new start reaches more members. Copies of a library on several file systems may
      # have the same inode number, and look like one file. A file that several overlays show,
      # however, is one file, and with two links to it bpftrace would count twice. So a library
      # through which no process was reached gets a link of its own from then on, one library after
      # the other.
      def link_apart?
        missing = alone? ? [] : unreached
        return true if missing.any? { |one| !covered?(one) } # it has come since the start

        ids = missing.map { |one| one.process.file.id } - @apart
        @apart.concat(ids.first(1))
        ids.any?
      end

      # The identity of a member's library file. nil where bpftrace finds the file by itself.
      def identity(one)
        return one.process.identity unless @apart.include?(one.process.file.id)

        [*one.process.identity, *one.process.file.id]
      end

      # Whether there is a link to the library file of this process.
      def covered?(one) = covered.include?(identity(one))

      # How many other processes have been switched on, since they map the same files. seconds: for
      # the search.
      def others(seconds)
        return 0 if alone?

        known = members.map(&:pid)
        files = members.map { |one| one.process.identity }.uniq
        all, = ProbedProcess.all(seconds: seconds)
        all.count { |process| !known.include?(process.pid) && switched_on?(process, files) }
      end

      # Lets bpftrace print its maps and end. bpftrace 0.17 ignores a signal that comes while it
      # reads, and waits for events again. So this method is called again and again, and repeats the
      # signal after so many seconds, but only then: later it would cut off the maps.
      def interrupt(again_after)
        return if @interrupted_at && now - @interrupted_at < again_after

        deaf = @interrupted_at ? bpftraces.select { |bpftrace| deaf?(bpftrace) } : bpftraces
        return if deaf.empty?

        deaf.each(&:interrupt)
        @interrupted_at = now
      end

      def interrupted? = !@interrupted_at.nil?

      # Whether a tracer listens to a member, perhaps another one than ours: then the semaphores
      # do not tell when ours has detached.
      def held? = alive.any? { |one| one.shared? || one.heard? }

      # What bpftrace has printed on stderr.
      def errors = bpftraces.map(&:errors).join

      def kill = bpftraces.each(&:kill)

      # No hook may outlive the session.
      def discard
        kill
        bpftraces.each(&:discard)
        @links&.remove
        @links = nil
      end

      # Writes a file beside the links. Returns its path.
      def file(name, text) = links.file(name, text)

      # Writes the program for the event. path: of providers/on.bt or on_stack.bt.
      def program_of_event(path)
        link = links.add_apart(@function.file) if @function
        file(File.basename(path), @event.program(File.read(path), link))
      end

      # How many processes run code of the file of a uprobe: [number, whether all processes could be
      # read]. nil for other events. bpftrace 0.17 sets the breakpoint in all of them, also with -p.
      # Raises Error where valgrind runs one of them. seconds: for the search.
      def mapping(seconds)
        return unless @function

        pids = Survey.pids
        answers = Reader.ask_each(:runner, pids, @function.id, limit: Reader.deadline(seconds))
        refuse_valgrind(pids.zip(answers).filter_map { |pid, runner| pid if runner == :valgrind })
        unknown = answers.count { |one| one.is_a?(Refused) && one.kind != :gone }
        [answers.count(:kernel), unknown.zero? && answers.size == pids.size]
      end

      # Raises Error where bpftrace has other numbers for processes than this process, and the
      # numbers matter. next_step: for the user.
      def check_numbers(next_step)
        return if Bpftrace.initial_pids? || (alone? && !@numbered)

        bpftrace = Bpftrace.find
        return unless bpftrace.numbers == :outer

        raise Error.new("bpftrace #{bpftrace} counts processes by their numbers " \
                        "outside of this PID namespace",
                        next_step)
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      def links = @links ||= Links.new

      def alone_with?(process)
        @selection.single? && process&.on_disk? && (@event.nil? || @event.alone?(process.pid)) &&
          !(@elsewhere && Bpftrace.find.filters?)
      rescue Refused
        false
      end

      # Raises Error for a process that may not be traced. If the process came later, only a Refused
      # becomes a note (Selection#note).
      def member(process)
        one = Member.new(process, @probes, some: @order.some, waits: @waits)
        alone = alone_with?(process)
        check_namespace(one.pid) unless alone && !@numbered && !@threads
        process.library(@wanted, @users).last.close unless alone
        find_function(process) if @event&.uprobe?
        one
      end

      # The file of a uprobe. identity: its device and inode. id: see MappedFile.
      Function = Struct.new(:identity, :id, :path, :file)

      # All processes must run the function from the same file: the program has a probe in one.
      def find_function(process)
        found = Function.new(*process.function(@event.file, @event.symbol, @users))
        return @function = found if @function.nil?

        found.file.close
        return if found.identity == @function.identity

        raise Refused.new(:other,
                          "process #{process.pid} maps another file #{found.path} than process " \
                          "#{members.first&.pid || "before"}",
                          "trace it by itself: -p #{process.pid}")
      end

      # valgrind reads a breakpoint as an instruction of the program.
      def refuse_valgrind(pids)
        return if pids.empty?

        them = "process#{"es" unless pids.one?} #{pids.join(", ")}"
        raise Error.new("a uprobe in #{@event.file} could end #{them}, which valgrind runs",
                        "run the command when valgrind has ended")
      end

      def check_namespace(pid)
        return if Bpftrace.initial_pids?
        return if %W[self #{pid}].map { |one| File.readlink("/proc/#{one}/ns/pid") }.uniq.one?

        itself = "trace it by itself (-p #{pid}), or " unless @numbered || @threads
        raise Refused.new(:other,
                          "process #{pid} is in a PID namespace below this one, " \
                          "where bpftrace has no number for it",
                          "#{itself}run the command on the host")
      rescue SystemCallError # it has ended
        nil
      end

      # Makes one link for each distinct file, through a process that is alive. Once bpftrace is
      # attached, the kernel identifies the library by the file, and not by the process.
      def linked
        links.clear
        alive.uniq { |one| identity(one) }.each do |one|
          links.add(one.process.library(@wanted, @users).last)
        rescue Refused => e
          @refused.call(e, one)
        end
        links.pattern
      end

      # Two files with the same identity may be different files.
      def switched_on?(process, files)
        process.library({}, nil).last.close
        files.include?(process.identity) && Member.new(process, @probes, some: @order.some).raised?
      rescue Error
        false
      end

      # True when bpftrace still waits for events, as if it had received no signal.
      def deaf?(bpftrace)
        bpftrace.status.nil? && (bpftrace.waiting_for_events? || (bpftrace.hidden? && held?))
      end
    end
  end
end
