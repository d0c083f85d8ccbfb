# frozen_string_literal: true

module Support
  # Recordings with call paths like those of a web application, without a process. They answer what
  # Probescope::Profile::Page asks of a Recording.
  class MadeRecording
    Kind = Struct.new(:name, :unit, :counts, :weighs) do
      def described = {name: name, unit: unit, counts: counts, weighs: weighs, looked: nil}
    end
    Frame = Struct.new(:function, :path, :line, :defined, :own, :what)
    Series = Struct.new(:pid, :thread_id, :request)

    CPU = Kind.new("cpu", "nanoseconds", %w[samples count], %w[cpu nanoseconds])
    ALLOC = Kind.new("alloc", "bytes", %w[objects count], %w[allocated bytes])
    TICK = 10_101_010 # ns
    BUCKET = 1_000_000_000 # ns

    attr_reader :kinds, :frames, :parents, :node_frames, :series, :cells
    attr_accessor :metadata

    def initialize(kinds: [CPU], metadata: {})
      @kinds = kinds
      @metadata = metadata
      @frames = []
      @parents = [0]
      @node_frames = [nil]
      @series = []
      @cells = []
      @numbers = Hash.new { |all, key| all[key] = all.size + 1 }
    end

    def begin_ns = 1_795_739_000_000_000_000
    def bucket_ns = BUCKET
    def duration_ns = ((@cells.map(&:first).max || 0) + 1) * BUCKET
    def each_cell(&block) = @cells.each { |cell| block.call(*cell) }

    def thread(pid, thread_id, request = nil) = (@series << Series.new(pid, thread_id, request)).size - 1

    # stack: [[function, path, line, defined, own or :what], ...], the outermost one first. Returns
    # the number of the node.
    def node(stack)
      stack.inject(0) do |parent, (function, path, line, defined, whose)|
        frame = Frame.new(function, path, line, defined, whose == true, whose == :what)
        number = (@frame_numbers ||= {})[frame] ||= (@frames << frame).size - 1
        (@node_numbers ||= {})[[parent, number]] ||= begin
          @parents << parent
          (@node_frames << number).size - 1
        end
      end
    end

    def add(bucket, series, kind, node, count, weight, looked = count)
      @cells << [bucket, series, kind, node, count, weight, looked]
    end

    GEMS = "/var/lib/gems/3.1.0/gems"
    SERVER = [["block in Thread.new", "#{GEMS}/puma-6.4.2/lib/puma/thread_pool.rb", 155, 148, false],
              ["Puma::Server#process_client", "#{GEMS}/puma-6.4.2/lib/puma/server.rb", 442, 401, false],
              ["Puma::Request#handle_request", "#{GEMS}/puma-6.4.2/lib/puma/request.rb", 81, 48, false],
              ["Rack::Builder#call", "#{GEMS}/rack-2.2.8/lib/rack/builder.rb", 244, 240, false],
              ["Shop::App#call", "/srv/shop/app.rb", 12, 8, true]].freeze
    SHOP = {
      "Shop::Cart#total" => [9, [["Shop::Cart#total", "/srv/shop/cart.rb", 6, 5, true],
                                 ["BigDecimal#round", "<cfunc>", 0, 0, false]]],
      "Shop::Report#render" => [14, [["Shop::Report#render", "/srv/shop/report.rb", 21, 18, true],
                                     ["ERB#result", "/usr/lib/ruby/3.1.0/erb.rb", 905, 900, false],
                                     ["String#gsub", "<cfunc>", 0, 0, false]]],
      "Shop::Store.find" => [6, [["Shop::Store.find", "/srv/shop/store.rb", 31, 27, true],
                                 ["SQLite3::Statement#step", "#{GEMS}/sqlite3-1.6.9/lib/sqlite3/statement.rb",
                                  88, 80, false]]],
      "JSON" => [5, [["JSON.generate", "/usr/lib/ruby/3.1.0/json/common.rb", 302, 296, false]]],
      "own" => [4, [["Shop::Price#to_s", "/srv/shop/price.rb", 14, 12, true]]]
    }.freeze

    # A web application with two threads. factors: {path of SHOP => how much more of it there is}.
    def self.shop(seconds: 30, seed: 1, factors: {}, kinds: [CPU, ALLOC])
      random = Random.new(seed)
      made = new(kinds: kinds)
      threads = [made.thread(4711, 4712, "GET /report"), made.thread(4711, 4713, "GET /cart")]
      outside = made.node(SERVER.first(2) + [["(garbage collection)", "", 0, 0, :what]])
      paths = SHOP.to_h do |name, (weight, stack)|
        [made.node(SERVER + stack), weight * factors.fetch(name, 1)]
      end
      seconds.times do |second|
        threads.each_with_index do |thread, index|
          paths.merge(outside => 3).each do |node, weight|
            count = (weight * (1 + index) * random.rand(0.7..1.3)).round
            made.add(second, thread, 0, node, count, count * TICK) if count.positive?
            made.add(second, thread, 1, node, count * 900, count * 41_000, count) if kinds.size > 1
          end
        end
      end
      made
    end

    # As many cells as are asked for, on 200,000 nodes of 30 to 60 frames.
    def self.large(cells, nodes: 200_000, seed: 1)
      random = Random.new(seed)
      made = new
      threads = Array.new(16) { |i| made.thread(4711 + (i / 4), 5000 + i) }
      grow(made, nodes, random)
      leaves = Array.new(20_000) { random.rand(made.parents.size) }
      each = cells.fdiv(threads.size * 600)
      600.times do |second|
        threads.each do |thread|
          leaves.sample(each.round, random: random).each do |node|
            made.add(second, thread, 0, node, 1 + random.rand(3), TICK * (1 + random.rand(3)))
          end
        end
      end
      made
    end

    # Adds nodes below nodes: each is called by one of the last ones.
    def self.grow(made, nodes, random)
      4000.times do |i|
        own = (i % 7).zero?
        path = own ? "/srv/shop/app/models/file_#{i % 211}.rb" : "#{GEMS}/gem-#{i % 40}/lib/#{i % 500}.rb"
        made.frames << Frame.new("Module#{i % 97}::Class#{i % 331}#method_#{i}", path,
                                 10 + (i % 190), 8 + (i % 150), own, false)
      end
      (nodes - 1).times do |i|
        made.parents << (i < 10 ? 0 : [i - random.rand(1..200), 0].max)
        made.node_frames << random.rand(4000)
      end
    end
    private_class_method :grow
  end
end
