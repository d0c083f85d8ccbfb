# frozen_string_literal: true

require "probescope"
require "probescope/coverage"

RSpec.describe Probescope::Coverage do
  # Returns the roots for a script that is started as `ruby SCRIPT` in a folder.
  def roots(script, folder, environment = {})
    own = $PROGRAM_NAME.dup
    $PROGRAM_NAME = script
    allow(Bundler).to receive(:root).and_raise(Bundler::GemfileNotFound)
    Dir.chdir(folder) { described_class.new(environment).roots }
  ensure
    $PROGRAM_NAME = own
  end

  it "takes the working directory and the script's folder as the application's" do
    expect(roots("/srv/shop/app.rb", "/tmp")).to eq(%w[/tmp/ /srv/shop/])
  end

  # GIVEN an image with its application in /, WHEN the application is started there, THEN the script
  # belongs to the application, and the system's files do not.
  it "takes only the script if the folder is /, unless PROBESCOPE_ROOT is set" do
    expect(roots("app.rb", "/")).to eq(["/app.rb"])
    expect(roots("/usr/local/bin/puma", "/")).to eq(["/usr/local/bin/"])
    expect(roots("app.rb", "/", "PROBESCOPE_ROOT" => "/")).to eq(["/", "/app.rb"])
  end
end
