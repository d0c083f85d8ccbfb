# frozen_string_literal: true

# The web application of both languages: its answers, and what the commands show of it under load.
# language: {app: a class like Support::RackApp, ours: a part of the paths of its files, parser:
# {type:, function:, file:, text:, depth:} of the first row of `exceptions`, checksum:, hot:,
# fixed:, gone: names of functions}.
RSpec.shared_examples "a freight desk" do |language|
  def started(app, **env) = keep(app.new(env: env.transform_keys(&:to_s))).ready
  def ours(row) = row.fetch("file")[%r{examples/\w+_app/.*}]

  # Traces with several commands at once. Returns the rows by the command's name.
  def ask(app, commands, seconds)
    asked = commands.to_h do |command|
      [command, probescope_start(command, "-p", app.pid, "--workers", "-d", seconds, "--json")]
    end
    asked.transform_values do |command|
      expect(command.wait).to be_success, command.to_s
      answer = JSON.parse(command.out)
      expect(answer["pids"]).to match_array([app.pid, *app.workers])
      answer.fetch("rows")
    end
  end

  it "parses a manifest, prints labels with the same checksum when fixed, and refuses invalid input" do
    manifest = "(container C-7 (pallet P-1 (crate K-3 tea 12 rice 40)) (pallet P-2 salt 9))"
    answers = [{}, { FIXED: "parser,checksum" }].map do |env|
      app = started(language.fetch(:app), **env)
      found = JSON.parse(app.post("/manifests", manifest).body)
      expect(found)
        .to eq("kind" => "container", "name" => "C-7", "kilograms" => 61, "items" => 3, "levels" => 3)
      refused = ["(container C-7", "tea 12", "(a b) c", "(a b tea many", "("].map do |text|
        app.post("/manifests", text).code
      end
      expect(refused).to all(eq("422"))
      expect(app.post("/manifests", manifest, "application/x-www-form-urlencoded").code).to eq("415")
      JSON.parse(app.get("/labels/4711").body)
    end
    expect(answers.uniq.size).to eq(1)
    expect(answers.first["checksum"]).to eq(format("%08x", Zlib.crc32(answers.first["label"])))
  end

  # The commands trace the master's workers, as in the guide.
  it "shows its mistakes under load, and none when they are fixed", :bpf,
     full: "measures for minutes beside other tests" do
    app = started(language.fetch(:app))
    skip_unless_served(app, "sample__stats", "backtrace__done")
    load = keep(app.load)
    found = ask(app, %w[exceptions], 4)
    hot = sampled(150, [4, 16, 60]) { |seconds| ask(app, %w[hot], seconds)["hot"] }
    raised, parser = found["exceptions"].first, language.fetch(:parser)
    line = File.readlines(File.join(Support::ROOT, parser.fetch(:file)))
               .index { |text| text.include?(parser.fetch(:text)) } + 1
    expect(raised)
      .to include("type" => parser.fetch(:type), "function" => parser.fetch(:function), "line" => line)
    expect(ours(raised)).to eq(parser.fetch(:file))
    expect(raised["mean_depth"]).to be > parser.fetch(:depth)
    expect(hot.first(6).map { |row| row["function"] }).to include(*language.fetch(:hot))
    expect(load.stop(:INT)).to be_success, load.to_s

    fixed = started(language.fetch(:app), FIXED: "parser,checksum")
    load = keep(fixed.load)
    found = ask(fixed, %w[exceptions calls], 2)
    expect(found["exceptions"].map { |row| row["type"] }).not_to include(parser.fetch(:type))
    called = found["calls"].map { |row| row["function"] }
    expect(called).to include(*language.fetch(:fixed))
    expect(called).not_to include(language.fetch(:gone))
    expect(load.stop(:INT)).to be_success, load.to_s
  end

  # The first request wakes a sleeping VM, so it is not counted here.
  it "shows each of its requests, by route and status, as its client counts them", :bpf do
    app = started(language.fetch(:app))
    command = probescope_start("requests", "-p", app.pid, "--workers", "-d", 600, "--json")
    app.workers.each do |pid|
      info = app.info(pid)
      await("the hooks of #{pid}", within: 60) { app.get("/") && info.state("request__done") == :on }
      before = info.header[:flushes]
      await("two flushes of #{pid}") { info.header[:flushes] >= before + 2 }
    end
    manifest = "(container C-7 (crate K-3 tea 12 rice 40))"
    asked = Array.new(20) { |i| ["GET", language.fetch(:labels), app.get("/labels/#{i}")] }
    asked += Array.new(7) { ["POST", "/manifests", app.post("/manifests", manifest)] }
    asked += Array.new(3) { ["POST", "/manifests", app.post("/manifests", "(container C-7")] }
    asked << ["POST", "/manifests", app.post("/manifests", manifest, "text/html")]
    asked += %w[/nowhere?at=all /wp-login.php].map { |path| ["GET", "(not found)", app.get(path)] }
    app.workers.each do |pid|
      before = app.info(pid).header[:flushes]
      await("what was asked to be told") { app.info(pid).header[:flushes] >= before + 2 }
    end
    expect(command.stop(:INT)).to be_success, command.to_s
    expected = asked.group_by { |method, route, _| [method, route] }.transform_values do |same|
      same.map { |one| one.last.code }.tally
    end
    rows = JSON.parse(command.out)["rows"].reject { |row| row["route"] == "/" }
    told = rows.group_by { |row| row.values_at("method", "route") }
    expect(told.transform_values { |same| same.map { |row| row["statuses"] }.reduce(:merge) }).to eq(expected)
    expect(told[["POST", "/manifests"]].map { |row| row.values_at("status", "count") })
      .to contain_exactly(["2xx", 7], ["4xx", 4])
    expect(expected[["POST", "/manifests"]]).to eq("200" => 7, "422" => 3, "415" => 1)
    expect(rows).to all(include("p50_ns" => be_positive, "errors" => 0))
  end
end
