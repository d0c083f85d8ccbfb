# frozen_string_literal: true

require "probescope"
require "probescope/coverage"

RSpec.describe Probescope::Coverage do
  # The roots of a script that is started as `ruby SCRIPT` in a folder.
  def roots(script, folder, environment = {})
    own = $PROGRAM_NAME.dup
    $PROGRAM_NAME = script
    allow(Bundler).to receive(:root).and_raise(Bundler::GemfileNotFound)
    Dir.chdir(folder) { described_class.new(environment).roots }
  ensure
    $PROGRAM_NAME = own
  end

  it "takes the working directory and the script's for the application's" do
    expect(roots("/srv/shop/app.rb", "/tmp")).to eq(%w[/tmp/ /srv/shop/])
  end

  # GIVEN an image with its application in /, WHEN that is started there, THEN the script is the
  # application, and the system is not.
  it "takes of / the script alone, unless PROBESCOPE_ROOT says so" do
    expect(roots("app.rb", "/")).to eq(["/app.rb"])
    expect(roots("/usr/local/bin/puma", "/")).to eq(["/usr/local/bin/"])
    expect(roots("app.rb", "/", "PROBESCOPE_ROOT" => "/")).to eq(["/", "/app.rb"])
  end
end
