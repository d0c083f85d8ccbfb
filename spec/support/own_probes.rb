# frozen_string_literal: true

# For specs of programs with their own probes, whose files are in a directory of the spec.
RSpec.shared_context "with probes of their own" do
  let(:directory) { Dir.mktmpdir }
  let(:environment) { Support.plain_env.merge("XDG_RUNTIME_DIR" => directory) }
  after { FileUtils.remove_entry(directory) }

  # Options of Ruby, for #start.
  def options = []

  def start(*arguments, **variables)
    env = environment.merge(variables.transform_keys(&:to_s))
    keep(Support::Child.new(RbConfig.ruby, *options, "-I#{Support::ROOT}/lib", *arguments,
                            env: env, stdin: true))
  end

  # Returns the output of a program that fires without a tracer.
  def printed(source, **variables)
    program = start("-rprobescope", "-e", source, **variables)
    expect(program.wait).to be_success, program.to_s
    program.out.lines(chomp: true)
  end
end
