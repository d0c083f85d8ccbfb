# frozen_string_literal: true

require "spec_helper"
require "support/jaeger"

# Runs both applications, a bridge and Jaeger in the same way as a reader of the guide.
RSpec.describe "examples/traces.sh" do
  script = File.join(Support::ROOT, "examples/traces.sh")

  define_method(:traces_sh) do |*arguments, env: {}|
    keep(Support::Child.new("bash", script, *arguments, env: Support.plain_env.merge(env)))
  end

  it "has a help text, and reports what is missing" do
    help = traces_sh("--help")
    expect(help.wait).to be_success
    expect(help.out).to match(/--slow TIME/)
    command = %r{curl -fL https://\S+ \| tar -xz -C /tmp && JAEGER=\S+ \S*traces.sh}
    jaeger = /\Atraces: Jaeger is not in PATH\n  try: #{command}\n\z/
    [[["--quick"], {}, /no option --quick\n  try: examples.traces.sh --help/, 2],
     [[], {"JAEGER" => "/nowhere"}, %r{JAEGER=/nowhere cannot be run\n  try: JAEGER=}, 1],
     [[], {"PATH" => "/usr/bin:/bin", "JAEGER" => ""}, jaeger, 1]].each do |arguments, env, message, status|
      child = traces_sh(*arguments, env: env)
      expect(child.wait.exitstatus).to eq(status)
      expect(child.err).to match(message)
    end
  end

  # GIVEN both applications, of which one calls the other, WHEN the bridge is attached, THEN one
  # trace has slow functions of each, below that request's own spans and within their times, and
  # names the line of the costly exception.
  it "shows one request through both languages, and leaves nothing behind", :bpf, :jaeger,
     full: "starts three servers and two tracers" do
    Support::Jaeger.require! { |reason| skip reason }
    Support::FlaskApp.require! { |reason| skip reason }
    child = traces_sh("--stay", env: {"JAEGER" => Support::Jaeger.path, "RUBY" => RbConfig.ruby,
                                      "PYTHON" => Support::Python.interpreter})
    child.await_line(/Ctrl-C ends it/, within: 200)
    expect(child.out).to match(
      /freight-desk: POST.*- Manifest#parse  .*freight-desk-python: POST.*- manifest.Manifest.parse  /m
    )
    expect(child.out).to match(%r{! (\d+ x )?NoMethodError at lib/manifest.rb:14$})

    url = child.out[%r{starting Jaeger: (http://\S+)}, 1]
    traces = Support::Jaeger::Answers.new(url).traces("freight-desk-python")
    seen = traces.flat_map { |spans| spans.each_value.select(&:ours?).map { |span| check(span, spans) } }
    expect(seen.uniq)
      .to include(["freight-desk", "Manifest#parse"], ["freight-desk-python", "manifest.Manifest.parse"])

    expect(child.stop(:TERM, within: 90).exitstatus).to eq(130)
    expect { Net::HTTP.get(URI(url)) }.to raise_error(SystemCallError)
    expect { Process.kill(0, -child.pid) }.to raise_error(Errno::ESRCH)
  end

  # [service, name]
  def check(span, spans)
    around = spans.fetch(span.parent)
    expect(around.service).to eq(span.service)
    expect(span.began).to be >= around.began - 1000
    expect(span.ended).to be <= around.ended + 1000
    [span.service, span.name]
  end
end
