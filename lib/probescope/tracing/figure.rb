# frozen_string_literal: true

module Probescope
  module Tracing
    # Formats figures. nil, an unknown figure, is "-". A half is rounded up, in whole numbers: printf
    # of Ruby 3.1 and of Python make 5.90 and 5.91 of 5.905. spec/fixtures/figures.json has what gem
    # and wheel show.
    module Figure
      module_function

      # part / whole, to 6 decimal places; nil where either is not known.
      def ratio(part, whole) = part && whole&.positive? ? (part.to_f / whole).round(6) : nil

      # 1234567 -> "1,234,567"
      def count(number) = number.nil? ? "-" : number.to_s.reverse.scan(/\d{1,3}/).join(",").reverse

      # 0.123 -> "12.3 %"
      def share(number) = number.nil? ? "-" : "#{fixed((number * 1000).round, 1)} %"

      # 12.345 -> "12.3", 6704.5 -> "6,705"
      def decimal(number)
        return "-" if number.nil?

        tenths = (number * 10).round
        tenths < 10_000 ? fixed(tenths, 1) : count(number.round)
      end

      # Nanoseconds -> "950 ns", "1.23 us", "12.3 ms", "123 s"
      def time(nanoseconds)
        return "-" if nanoseconds.nil?

        scale(nanoseconds, [["ns", 1], ["us", 10**3], ["ms", 10**6], ["s", 10**9]])
      end

      # 2048 -> "2.00 KiB"
      def bytes(number)
        return "-" if number.nil?

        scale(number, [["B", 1], ["KiB", 1024], ["MiB", 1024**2], ["GiB", 1024**3]])
      end

      # Three digits, without decimals of the smallest unit, and more than three of the largest one.
      # A value that would round to four digits is given in the next unit: "1.00 ms", not "1000 us".
      def scale(number, units)
        unit, size = units.find { |_, value| rounded(number, value) < 1000 } || units.last
        digits = size == 1 ? 0 : [2, 1].find { |some| rounded(number * (10**some), size) < 1000 } || 0
        "#{fixed(rounded(number * (10**digits), size), digits)} #{unit}"
      end

      # part / whole, as a whole number.
      def rounded(part, whole) = ((2 * part) + whole).div(2 * whole)

      # 1234, 2 -> "12.34"
      def fixed(number, digits)
        digits.zero? ? number.to_s : number.to_s.rjust(digits + 1, "0").insert(-digits - 1, ".")
      end
    end
  end
end
