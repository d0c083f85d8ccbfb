# frozen_string_literal: true

require "erb"

# Makes the bpftrace programs that differ only in the probe they wait for: bpftrace takes no name of a probe as an argument
# that may be left out.
module ProgramGenerator
  SOURCE = "providers/slow.bt.erb"
  # ms of each probe function__slow*.
  OUTPUTS = [1, 10, 100].to_h { |ms| ["providers/slow#{ms}ms.bt", ms] }.freeze

  module_function

  def write(root)
    OUTPUTS.each { |path, ms| File.write(File.join(root, path), text(root, ms)) }
  end

  def text(root, ms) = ERB.new(File.read(File.join(root, SOURCE))).result_with_hash(ms: ms)
end
