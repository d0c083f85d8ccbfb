# frozen_string_literal: true

require "open3"
require "rbconfig"

module Support
  # The libstapsdt.so of this project, as `rake libstapsdt` installs it, and programs that use it.
  module LibStapsdt
    PREFIX = File.join(ROOT, "tmp/libstapsdt-spec")

    module_function

    def build
      @build ||= tool(RbConfig.ruby, "-S", "bundle", "exec", "rake", "libstapsdt", "PREFIX=#{PREFIX}")
    end

    # Compiles a C program as its documentation describes, with pkg-config. Returns its path.
    def compile(source, name = File.basename(source, ".c"))
      build
      File.join(PREFIX, name).tap do |program|
        tool("cc", "-O1", "-o", program, source, *flags, "-Wl,-rpath,#{PREFIX}/lib")
      end
    end

    # Systems that only run tests have no pkg-config.
    def flags
      unless system("sh", "-c", "command -v pkg-config >/dev/null")
        return ["-I#{PREFIX}/include", "-L#{PREFIX}/lib", "-lstapsdt"]
      end

      tool({ "PKG_CONFIG_PATH" => "#{PREFIX}/lib/pkgconfig" }, "pkg-config", "--cflags",
           "--libs", "libstapsdt").split
    end

    def tool(*command, chdir: ROOT)
      out, status = Open3.capture2e(*command, chdir: chdir)
      raise "#{command.join(" ")}: #{out}" unless status.success?

      out
    end
  end
end
