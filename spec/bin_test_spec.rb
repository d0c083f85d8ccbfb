# frozen_string_literal: true

require "open3"

# The other arguments run the tests.
RSpec.describe "bin/test" do
  it "refuses an unknown argument, and lists the known ones" do
    out, err, status = Open3.capture3("bin/test", "lint", chdir: Support::ROOT)
    expect([err, status.exitstatus]).to eq(["bin/test: lint is none of these\n", 2])
    expect(out).to include("bin/test hostile    RSpec: hostile processes and files")
    help, _, ended = Open3.capture3("bin/test", "--help", chdir: Support::ROOT)
    expect([help, ended.exitstatus]).to eq([out, 0])
  end
end
