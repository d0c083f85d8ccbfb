# frozen_string_literal: true

module Probescope
  module Host
    # One of providers/*.bt.
    module Program
      FOLDER = File.expand_path("../../../providers", __dir__)

      module_function

      def path(file) = File.join(FOLDER, file)

      # How a map's values for several processes become one, where they are not added up: {"max_ns" => :max}.
      def merges(path) = File.read(path).scan(/@(\w+)\[[^=]*\] = (max|min)\(/).to_h.transform_values(&:to_sym)

      # The names of the probes that a program waits for.
      def probes(path) = File.read(path).scan(/^usdt:\$1:probescope:(\w+)/).flatten.uniq
    end
  end
end
