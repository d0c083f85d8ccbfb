# frozen_string_literal: true

require_relative "../probescope"

module Probescope
  # A USDT probe for one method. It fires at the end of each call with the duration in ns and the
  # outcome: 0 the method returned, 1 an exception left it.
  #
  #   Probescope::Latency.trace(Shop::Cart, :checkout)   # => "Shop.Cart.checkout"
  #   Probescope::Latency.trace(Shop::Cart, :pay, :open) # => ["Shop.Cart.pay", "Shop.Cart.open"]
  #   Probescope::Latency.trace(Shop::Cart)              # all public methods that can be traced
  #
  #   bpftrace -p PID -e 'usdt:*:latency:"Shop.Cart.checkout"
  #                       { @ns = hist(arg0); @outcome[arg1] = count(); }'
  #
  # The method itself is not changed. Its body has a TracePoint only while a tracer listens to its
  # probe.
  module Latency
    # How probe names spell these characters. Every other character that is no letter, digit or _
    # becomes _x and two hexadecimal digits for each byte.
    REPLACED = { "?" => "_q", "!" => "_b", "=" => "_eq" }.freeze
    FIND, LIST = %i[instance_method public_instance_methods].map { |name| Module.instance_method(name) }
    private_constant :FIND, :LIST

    class << self
      # Gives each of the methods a probe. The methods must be written in Ruby. Returns the probe's
      # name, or an Array of names; nil where there are no probes (Probescope.unavailable_reason).
      #
      # A name is first looked up among the instance methods of the class or module, of any
      # visibility, then among its singleton methods. trace(Shop.singleton_class, :open) names a
      # singleton method directly. Without names, all public instance methods that the class or
      # module itself defines get a probe. A second call for the same method changes nothing.
      #
      # as: another name for the probe, for one method. Raises Error for a method that cannot be
      # traced. Calls Probescope.install.
      def trace(owner, *names, as: nil)
        raise Error, "as: is the name of one probe, for one method" if as && names.size != 1
        return unless Probescope.install

        probes = (names.empty? ? traceable(owner) : names).map { |name| trace_one(owner, name, as) }
        names.size == 1 ? probes.first : probes
      end

      # Removes the probes; without names, those of all methods that .trace without names chooses.
      # False when there were none.
      def untrace(owner, *names)
        return false unless Probescope.available?

        both = mods(owner)
        names = traceable(owner) if names.empty?
        names.map { |name| both.any? { |mod| Native.untrace_latency(mod, name.to_sym).any? } }.any?
      end

      # {name => {path:, listened:, error:}}. path: the file by which a tracer reaches every process
      # with this probe, or nil. error: why tracers do not see the probe, as far as known, or nil.
      def probes
        return {} unless Probescope.available?

        Native.latency_probes.to_h do |name, path, listened, error|
          [name, { path: path, listened: listened, error: error }]
        end
      end

      private

      def trace_one(owner, name, as)
        mod = find(owner, name)
        probe = as ? as.to_s : name_of(mod, name)
        wrong = Native.trace_latency(mod, name.to_sym, probe)
        raise Error, "#{probe}: #{wrong}" if wrong

        probe
      rescue ArgumentError => e # the name cannot be a C string
        raise Error, "#{probe.inspect}: #{e.message}"
      end

      def traceable(owner)
        mod = mods(owner).first
        LIST.bind_call(mod, false).select { |name| (method = own_method(mod, name)) && !obstacle(method) }
      end

      def mods(owner)
        # A class can redefine its own ===, but Module's === still works.
        mod = Module === owner # rubocop:disable Style/CaseEquality
        raise Error, "not a class or module: #{owner.inspect}" unless mod

        [owner, owner.singleton_class]
      end

      # The module or singleton class that defines the method itself.
      def find(owner, name)
        both = mods(owner)
        mod = both.find { |one| own_method(one, name) }
        refuse_others(both, name) unless mod
        why = obstacle(own_method(mod, name))
        refuse(mod, name, why) if why
        mod
      end

      def obstacle(method)
        iseq = RubyVM::InstructionSequence.of(method)
        return "it is written in C, and only methods written in Ruby can be traced" unless iseq

        if old? && iseq.label.start_with?("block ")
          "methods made by define_method can be traced from Ruby 3.2 on"
        end
      end

      def refuse_others(mods, name)
        mod = mods.reverse.find { |one| any_method(one, name) }
        refuse(mods.first, name, "there is no such method, and #{label(mods.last, name)} neither") unless mod
        refuse(mod, name, "it is #{label(any_method(mod, name).owner, name)}: trace that")
      end

      # Finds the method also where a prepended module overrides it.
      def own_method(mod, name)
        method = any_method(mod, name)
        method = method.super_method while method && method.owner != mod
        method
      end

      def any_method(mod, name)
        FIND.bind_call(mod, name.to_sym)
      rescue NameError
        nil
      end

      def old? = RUBY_VERSION.start_with?("3.1.")

      def refuse(mod, name, why)
        raise Error, "#{label(mod, name)}: #{why}"
      end

      # "Shop::Cart#checkout", "Shop::Cart.open", "#<Shop::Cart>.close"
      def label(mod, name) = Native.method_name(mod, name.to_sym)

      def name_of(mod, name)
        label = label(mod, name)
        if label.start_with?("(", "#<(")
          refuse(mod, name, %(its class has no name; give the probe one with as: "Name.#{name}"))
        end

        receiver = label.delete_suffix(name.to_s).chop
        [receiver.delete("#<>").split("::"), name.to_s].flatten.map { |part| plain(part) }.join(".")
      end

      def plain(text)
        text.gsub(/[?!=]/, REPLACED).b.gsub(/[^A-Za-z0-9_]/n) { |byte| format("_x%02x", byte.ord) }
      end
    end
  end
end
