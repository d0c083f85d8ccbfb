# frozen_string_literal: true

require "spec_helper"
require "json"
require "open3"
require "probescope/tracing/foreign"

# Each program is a process that only waits. What it would start is in its text.
RSpec.describe Probescope::Tracing::EntryPoint do
  python = "python3"
  wait_in_python = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"
  wait_in_ruby = "puts 'ready'\n$stdout.flush\n$stdin.read\n"

  before { @folder = File.realpath(Dir.mktmpdir) }
  after { FileUtils.rm_rf(@folder) }

  def write(name, text)
    File.join(@folder, name).tap do |path|
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
    end
  end

  def globs(*command, env: {})
    child = keep(Support::Child.new(*command, env: ENV.to_h.merge(env), stdin: true))
    child.await_line(/\Aready$/)
    found = Probescope::Tracing::Foreign.entry_point(child.pid)
    expect(found).to eq(globs_of_the_wheel(child.pid))
    found
  end

  def globs_of_the_wheel(pid)
    code = "import json, sys; from probescope.command.entry_point import globs; " \
           "print(json.dumps(globs(int(sys.argv[1]))))"
    out, status = Open3.capture2({"PYTHONPATH" => Support::Python::PACKAGE}, Support::Python.interpreter,
                                 "-c", code, pid.to_s)
    raise "the wheel's entry point: #{status}" unless status.success?

    JSON.parse(out)
  end

  it "is the package of a Python script in a folder bin, which imports it" do
    path = write("bin/shop", "#!/usr/bin/python3\nimport re\nimport sys\nif 0:\n    " \
                             "from shop.cli import main\n#{wait_in_python}")
    expect(globs(python, path)).to eq(%w[*/site-packages/shop/* */dist-packages/shop/*])
    expect(globs(python, "-X", "utf8", "-W", "ignore", path, "serve")).to include("*/dist-packages/shop/*")
    expect(globs(python, write("shop.py", File.read(path)))).to eq([])
  end

  it "is the package of a script that setuptools or Debian has written" do
    script = write("bin/shop", <<~PYTHON + wait_in_python)
      #!/usr/bin/python3
      # EASY-INSTALL-ENTRY-SCRIPT: 'Shop-Server==3.1','console_scripts','shop'
      import re
      import sys
      __requires__ = 'Shop-Server==3.1'
      try:
          from importlib.metadata import distribution
      except ImportError:
          from importlib_metadata import distribution
    PYTHON
    expect(globs(python, script)).to include("*/dist-packages/shop_server/*")
  end

  it "is the module that Python was started with" do
    write("shop/__main__.py", wait_in_python)
    write("shop/__init__.py", "")
    env = {"PYTHONPATH" => @folder}
    expect(globs(python, "-m", "shop", "serve", env: env)).to include("*/site-packages/shop/*")
    expect(globs(python, "-um", "shop", env: env)).to include("*/site-packages/shop/*")
    expect(globs(python, "-mshop", env: env)).to include("*/site-packages/shop/*")
    expect(globs(python, "-c", wait_in_python)).to eq([])
  end

  it "is the gem that a binstub of Ruby starts, or whose script it is" do
    stub = write("bin/shop", "if false\n  load Gem.activate_bin_path('shop_server', 'shop', '>= 0')\nend\n" \
                             "#{wait_in_ruby}")
    expect(globs(RbConfig.ruby, stub)).to eq(["*/gems/shop_server-*/*"])
    script = write("gems/shop-web-1.2.3/exe/shop", wait_in_ruby)
    expect(globs(RbConfig.ruby, "-I", "lib", script)).to eq(["*/gems/shop-web-*/*"])
    expect(globs(RbConfig.ruby, "-e", wait_in_ruby)).to eq([])
    inside = write("rvm/gems/ruby-3.1.2/gems/shop-web-1.2.3-x86_64-linux/bin/shop", wait_in_ruby)
    expect(globs(RbConfig.ruby, inside)).to eq(["*/gems/shop-web-*/*"])
  end

  it "is not RVM's folder for the gems of a Ruby" do
    stub = write("rvm/gems/ruby-3.1.2/bin/puma", "if false\n  load Gem.bin_path('puma', 'puma')\nend\n" \
                                                 "#{wait_in_ruby}")
    expect(globs(RbConfig.ruby, stub)).to eq([])
    script = write("rvm/gems/ruby-3.1.2@shop/bin/shop", "if false\n  load Gem.bin_path('shop', 'shop')\n" \
                                                        "end\n#{wait_in_ruby}")
    expect(globs(RbConfig.ruby, script)).to eq(["*/gems/shop-*/*"])
  end

  it "is none for what only runs applications, for other programs and through links" do
    stub = write("bin/puma", "if false\n  load Gem.bin_path(\"puma\", \"puma\")\nend\n#{wait_in_ruby}")
    expect(globs(RbConfig.ruby, stub)).to eq([])
    server = write("bin/serve", "if 0:\n    from gunicorn.app import run\n#{wait_in_python}")
    expect(globs(python, server)).to eq([])
    expect(globs("sh", "-c", "echo ready; read wait")).to eq([])
    hidden = write("elsewhere/shop", "if 0:\n    from shop.cli import main\n#{wait_in_python}")
    FileUtils.mkdir_p(File.join(@folder, "linked/bin"))
    File.symlink(hidden, File.join(@folder, "linked/bin/shop"))
    expect(globs(python, File.join(@folder, "linked/bin/shop"))).to eq([])
  end

  it "gives no names that are no names" do
    expect(described_class.python("../*")).to eq([])
    expect(described_class.ruby("../*")).to eq([])
    expect(described_class.ruby(nil)).to eq([])
  end
end
