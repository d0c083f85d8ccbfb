# frozen_string_literal: true

require "digest"
require "spec_helper"
require "yaml"

# page/vendor has files of npm packages, which nobody changes.
RSpec.describe "The libraries of the page" do
  folder = File.join(Support::ROOT, "page/vendor")
  packages = YAML.load_file("#{folder}/vendor.yml")

  packages.select { |package| package["file"] }.each do |package|
    it "have #{package["name"]} as npm has it" do
      path = "#{folder}/#{File.basename(package["file"])}"
      expect(Digest::SHA256.file(path).hexdigest).to eq(package.fetch("sha256"))
    end
  end

  it "are those that vendor.yml lists, with their licences" do
    files = packages.filter_map { |package| package["file"] && File.basename(package["file"]) }
    expect(Dir.children(folder)).to match_array([*files, "LICENSES", "vendor.yml"])
    heads = packages.map { |package| package.values_at("name", "version").join(" ") }
    expect(File.read("#{folder}/LICENSES")).to include(*heads)
  end
end
