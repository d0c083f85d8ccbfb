# frozen_string_literal: true

require "etc"
require_relative "result"
require_relative "syscalls"

module Probescope
  module Tracing
    # The time of all threads in a result of offcpu.bt: what the program added up, and what was under
    # way at the end of the interval, which it leaves in its maps. Threads without any event are those
    # that slept, or ran, for the whole interval.
    class OffCpu
      # site: address of the site of the innermost traced function, 0 without one, 1 if memory could
      # not be read. what: as in the program. request: a number of Result#requests, 0 for none; always 0
      # if the program does not tell requests apart.
      Wait = Struct.new(:pid, :site, :what, :request, :blocked, :queued, :times, :longest)

      # What the program knows beside the numbers of system calls.
      OTHER_THAN_CALLS = {60_001 => "page_fault", 60_002 => "vm_lock", 60_003 => "preempted",
                          60_004 => "stopped", 60_005 => "other", 60_006 => "starting"}.freeze
      OTHER = 60_005
      NO_FILE = 65_534
      NOT_KNOWN = 65_535
      WHY = (1 << 23) - 1
      # A lock, a timer and the end of a child are one call in Ruby.
      RUBY = "timer_lock_or_child"
      POLLS = %w[poll ppoll].freeze
      SELECTS = %w[select pselect6].freeze
      SIGNALS = %w[pause rt_sigtimedwait rt_sigsuspend].freeze
      # Calls that wait for the file in their first argument.
      OF_A_FILE = [*Syscalls::BYTES, "ioctl", "fcntl", "close"].freeze
      # A thread without any event in the interval ran all the time or never. /proc is read some ms
      # before and after.
      RAN = 0.9
      SLEPT_NS = 1_000_000

      # Waits of all threads.
      attr_reader :waits
      # Numbers of threads, and their times in ns.
      attr_reader :threads, :thread_ns, :on_cpu_ns
      # Threads of which nothing is known, because there are too many.
      attr_reader :more_threads

      # by_request: whether the program's keys have the request.
      def initialize(result, by_request: false)
        @result = result
        @by_request = by_request
        @members = result.members.to_h { |member| [member[:pid], member] }
        @waits = summed
        @threads, @thread_ns, @on_cpu_ns = %w[threads thread_ns on_cpu_ns].map { |map| total(map) }
        @more_threads = 0
        open_ones
        result.counted.each { |pid| quiet_ones(pid) if interval(pid) }
      end

      def queued_ns = waits.sum(&:queued)

      # {reason => ns}, the most time first.
      def blocked_ns
        found = waits.select { |wait| wait.blocked.positive? }.group_by { |wait| reason(wait).first }
        sums = found.transform_values { |same| same.sum(&:blocked) }
        sums.sort_by { |reason, ns| [-ns, reason] }.to_h
      end

      def left_over_ns = thread_ns - on_cpu_ns - waits.sum { |wait| wait.blocked + wait.queued }

      # By how much the times on the CPU exceed the CPU time of the processes. A time off the CPU whose
      # switches were not seen counts as on the CPU. 0 if the program did not end all intervals itself:
      # then the two cover different times.
      def beyond_cpu_ns
        return 0 unless result_ended?

        [on_cpu_ns - @result.cpu_ns, 0].max
      end

      # [name, file, line] of a site, or nil if it is not known.
      def site(pid, site) = sites[[pid, site]]

      # The key of a wait in the program's maps, behind the pid.
      def key(wait) = [wait.site, wait.what, *(wait.request if @by_request)]

      # {[pid, *key] of a sleeper => {site of the waker => ns}}
      def woken
        @woken ||= numbers("woken_ns").each_with_object({}) do |((*sleeper, waker), ns), all|
          (all[sleeper] ||= {})[waker] = ns
        end
      end

      # The reason of a wait, and the name of the system call or nil.
      def reason(wait)
        @reasons ||= {}
        @reasons[[wait.pid, wait.what]] ||= reason_of(wait.pid, wait.what)
      end

      def runtime(pid) = @members.dig(pid, :runtime)
      def version(pid) = @members.dig(pid, :version)
      # Whether the place of the VM lock is known.
      def lock_known?(pid) = number("gil", pid).to_i.positive?

      # [begin, end] in bpftrace's `nsecs`; nil if the process completed no interval. If the program
      # did not end the interval itself, it is the last event that counts.
      def interval(pid)
        @intervals ||= {}
        @intervals[pid] ||= begin
          began, ended, last, state = %w[began ended until followed].map { |map| number(map, pid) }
          [began, state == 2 ? ended : [ended, last.to_i].max] if began && ended
        end
      end

      private

      def result_ended? = @result.counted.all? { |pid| number("followed", pid) == 2 }

      def number(map, *key) = numbers(map)[key]

      # {[number, ...] => number} of a map. BEGIN makes an entry of 0 in some.
      def numbers(map)
        @numbers ||= {}
        @numbers[map] ||= @result.map(map).to_h do |key, value|
          [key.scan(/\d+/).map(&:to_i), Result.number(value)]
        end
      end

      def total(map) = numbers(map).values.sum

      def sites
        @sites ||= @result.map("row").to_h { |key, row| [key.scan(/\d+/).map(&:to_i), row.first(3)] }
      end

      # What ended in the interval.
      def summed
        keys = %w[blocked_ns queued_ns times].flat_map { |map| numbers(map).keys }.uniq
        keys.map do |key|
          figures = %w[blocked_ns queued_ns times longest_ns].map { |map| number(map, *key).to_i }
          pid, site, what, request = key
          Wait.new(pid, site, what, request.to_i, *figures)
        end
      end

      # Threads that were alive at the end of the interval.
      def open_ones
        numbers("at").each do |(pid, thread), at|
          began, ended = interval(pid)
          next unless began

          since = [began, number("since", pid, thread).to_i].max
          lived(ended - since)
          what = number("what", pid, thread).to_i
          from = [at, began].max
          what > 1 ? waiting(pid, thread, what, from, ended) : ran(ended - from)
        end
      end

      def lived(ns)
        @threads += 1
        @thread_ns += [ns, 0].max
      end

      def ran(ns)
        @on_cpu_ns += [ns, 0].max
      end

      def waiting(pid, thread, what, from, ended)
        woken, site, request, at = %w[woken site works_for at].map { |map| number(map, pid, thread).to_i }
        ready = woken > 1 ? woken.clamp(from, [from, ended].max) : ended
        blocked, queued = [ready - from, ended - ready].map { |ns| [ns, 0].max }
        @waits << Wait.new(pid, site, what, request, blocked, queued, 1, [ended - at, 0].max)
      end

      # Threads without any event in the interval.
      def quiet_ones(pid)
        began, ended = interval(pid)
        @more_threads += @members.dig(pid, :more_threads).to_i
        @members.dig(pid, :threads).to_a.each do |thread, ran, call|
          next if number("at", pid, thread)

          lived(ended - began)
          ran(ended - began) if ran > RAN * (ended - began)
          next unless ran < SLEPT_NS

          length = ended - began
          @waits << Wait.new(pid, 0, what_of(call), 0, length, 0, 1, length)
        end
      end

      # As the program has it.
      def what_of(call)
        number, first, second = call
        return (OTHER << 17) + NOT_KNOWN unless number

        poll = second.zero? ? NO_FILE : NOT_KNOWN
        ((number + 1) << 17) + (first < NO_FILE ? first : poll)
      end

      def reason_of(pid, what)
        why, file = (what >> 17) & WHY, what & NOT_KNOWN
        return [OTHER_THAN_CALLS[why], nil] if OTHER_THAN_CALLS.key?(why)

        call = name_of(why - 1)
        also = what >> 40
        return [of_two_files(file, also - 1, pid), call] if also.positive? && POLLS.include?(call)

        [of_a_call(call, what[16] == 1, file, pid), call]
      end

      def name_of(number)
        Syscalls::NUMBERS.fetch(Etc.uname[:machine], {}).fetch(number) { "syscall #{number}" }
      end

      def of_a_call(call, deep, file, pid)
        case kind = Syscalls::KINDS.fetch(call, "other")
        when "lock" then ruby?(pid) ? RUBY : "lock"
        when "file" then deep || !OF_A_FILE.include?(call) ? "file" : of_a_file(pid, file)
        when "ready" then of_files(call, file, pid)
        else kind
        end
      end

      def ruby?(pid) = runtime(pid) == "ruby"

      def of_files(call, file, pid)
        return "other" if SIGNALS.include?(call)
        return file.zero? ? "timer" : "ready" if SELECTS.include?(call)
        return "ready" if !POLLS.include?(call) || file == NOT_KNOWN
        return ruby?(pid) ? RUBY : "timer" if file == NO_FILE

        of_a_file(pid, file)
      end

      # A thread of Ruby up to 3.2 polls Ruby's eventfd beside the file that it waits for. If another
      # thread does that already, the main thread polls an eventfd of its own beside it.
      def of_two_files(file, also, pid)
        ruby?(pid) && files(pid)[also] == "event" ? of_a_file(pid, file) : "ready"
      end

      # Ruby wakes its own threads by an eventfd.
      def of_a_file(pid, file)
        kind = files(pid)[file]
        return kind if %w[file socket pipe timer].include?(kind)

        kind == "event" && ruby?(pid) ? RUBY : "other"
      end

      def files(pid)
        @files ||= {}
        @files[pid] ||= @members.dig(pid, :files).to_a.to_h
      end
    end
  end
end
