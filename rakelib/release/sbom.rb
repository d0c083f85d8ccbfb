# frozen_string_literal: true

require "digest"
require "json"
require "time"
require_relative "sysroot"

module Release
  # Writes a software bill of materials: CycloneDX 1.5, JSON. It lists the published files with
  # their sums, and the packages of Debian and Ubuntu whose headers and C library they were compiled
  # against. The product itself has no dependencies.
  module Sbom
    LICENSE = [{license: {id: "MIT"}}].freeze

    module_function

    # files: those in pkg. sysroots: those against which the files were compiled.
    def write(file, files, sysroots)
      inputs = sysroots.flat_map do |sysroot|
        sysroot.packages.map { |package| input(package, sysroot.arch) }
      end.uniq
      product = {type: "library", "bom-ref": "probescope", name: "probescope", version: VERSION,
                 licenses: LICENSE}
      components = files.map { |path| artefact(path) } + inputs
      text = {bomFormat: "CycloneDX", specVersion: "1.5", serialNumber: "urn:uuid:#{uuid(components)}",
              version: 1, metadata: {timestamp: Time.at(Release.epoch).utc.iso8601, component: product},
              components: components, dependencies: [{ref: "probescope", dependsOn: []}]}
      File.write(file, "#{JSON.pretty_generate(text)}\n")
    end

    def artefact(path)
      name = File.basename(path)
      {type: "file", "bom-ref": "file:#{name}", name: name, version: VERSION, licenses: LICENSE,
       hashes: [sum(Digest::SHA256.file(path).hexdigest)]}
    end

    # scope is "excluded", because no artefact contains the package.
    def input(package, arch)
      distribution = package["suite"] == "noble" ? "ubuntu" : "debian"
      purl = "pkg:deb/#{distribution}/#{package["name"]}@#{package["version"]}" \
             "?arch=#{arch.debian}&distro=#{package["suite"]}"
      {type: "library", "bom-ref": purl, name: package["name"], version: package["version"],
       scope: "excluded", purl: purl, hashes: [sum(package["sha256"])]}
    end

    # Raises unless the file conforms to the schema, which comes from npm.
    def check(file)
      require "json_schemer"
      modules = "#{ROOT}/tmp/cyclonedx"
      schemas = "#{modules}/node_modules/@cyclonedx/cyclonedx-library/res/schema"
      unless File.exist?(schemas)
        FileUtils.mkdir_p(modules)
        system("npm", "install", "--silent", "--no-save", "--legacy-peer-deps", "--prefix", modules,
               "@cyclonedx/cyclonedx-library@10.3.0", exception: true)
      end
      # The schema refers to other schemas by their file names.
      known = ->(uri) { JSON.parse(File.read("#{schemas}/#{File.basename(uri.path)}")) }
      schema = JSON.parse(File.read("#{schemas}/bom-1.5.SNAPSHOT.schema.json"))
      checker = JSONSchemer.schema(schema, ref_resolver: known)
      wrong = checker.validate(JSON.parse(File.read(file))).map { |one| one["error"] }
      raise "#{file}: #{wrong.first(5).join("; ")}" if wrong.any?
    end

    def sum(hex) = {alg: "SHA-256", content: hex}

    # Computed from the contents, so that equal builds have equal numbers.
    def uuid(components)
      hex = Digest::SHA256.hexdigest(JSON.generate(components))
      [hex[0, 8], hex[8, 4], "8#{hex[13, 3]}", "8#{hex[17, 3]}", hex[20, 12]].join("-")
    end
  end
end
