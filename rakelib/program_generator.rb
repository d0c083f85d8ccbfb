# frozen_string_literal: true

require "erb"

# Makes the bpftrace programs that differ in little: the probe they wait for, for bpftrace takes no name of a probe as an argument
# that may be left out, or that they tell requests apart, which takes a key more in each map.
module ProgramGenerator
  FOLDER = "providers"
  SOURCES = "#{FOLDER}/*.bt.erb".freeze
  # {program => [template, what is in it]}
  OUTPUTS = [
    *%w[hot exceptions alloc].map { |name| [name, name, {}] },
    *[1, 10, 100].map { |ms| ["slow#{ms}ms", "slow", {ms: ms}] }
  ].flat_map do |name, template, values|
    [[false, name], [true, "#{name}_by_request"]].map do |by_request, program|
      ["#{FOLDER}/#{program}.bt", ["#{FOLDER}/#{template}.bt.erb",
                                   {name: "#{program}.bt", by_request: by_request, at: by_request ? "pid, $request" : "pid", **values}]]
    end
  end.to_h.freeze

  module_function

  def write(root)
    OUTPUTS.each_key { |path| File.write(File.join(root, path), text(root, path)) }
  end

  # Of one of OUTPUTS.
  def text(root, path)
    template, values = OUTPUTS.fetch(path)
    ERB.new(File.read(File.join(root, template)), trim_mode: "-").result_with_hash(values)
  end
end
