# frozen_string_literal: true

require_relative "../probescope"
require_relative "route_templates"

module Probescope
  # Rack middleware that tells tracers of requests: `use Probescope::Rack`, as far outside as it can
  # be. Rails has it by itself. While no tracer listens it asks one question of C and calls the
  # application.
  #
  # What it does of its own raises nothing: it looks at what it is given before it takes it for a
  # String or an Array. There is no rescue in it, for that could swallow what other threads send
  # (Timeout, Thread#raise).
  class Rack
    # In the env of a request that is told of already; an application's own word for what its route
    # is.
    KEY = "probescope.request"
    ROUTE = "probescope.route"

    # Where there are no probes.
    module Nobody
      def self.requests? = false
    end

    def initialize(app)
      @app = app
      Probescope.tell_of_requests
      @native = Probescope.available? ? Native : Nobody
    end

    def call(env)
      @native.requests? && !env[KEY] ? traced(env) : @app.call(env)
    end

    # The route template that the framework left in the env, or nil.
    def self.template(env)
      own = env[ROUTE]
      own.is_a?(String) ? own : RouteTemplates.of(env)
    end

    # Within all other middleware: keeps which route was taken, before an application that shows
    # errors takes another (`config.exceptions_app = routes` of Rails).
    class Routed
      def initialize(app)
        @app = app
      end

      def call(env)
        @app.call(env)
      ensure
        env[ROUTE] ||= RouteTemplates.of(env) if env[KEY]
      end
    end

    # The body of an answer. The request lasts until it is closed, and is the current one while the
    # server reads it.
    class Body
      def initialize(body, request, status, template)
        @body = body
        @request = request
        @status = status
        @template = template
      end

      def close
        within { @body.close if @body.respond_to?(:close) }
      ensure
        @request.done(@status, @template)
      end

      def respond_to_missing?(name, include_all = false) = @body.respond_to?(name, include_all)

      # each, call, to_path, to_ary: what the body can do, it can do.
      def method_missing(name, ...)
        within { @body.public_send(name, ...) }
      ensure
        # to_ary closes the body. One that was called has written all, and Falcon does not close it.
        @request.done(@status, @template) if %i[to_ary call].include?(name)
      end

      private

      def within
        outer = Native.enter_request(@request)
        yield
      ensure
        Native.enter_request(outer)
      end
    end

    private

    def traced(env)
      request = Native::Request.start(env["REQUEST_METHOD"], path(env), env["HTTP_TRACEPARENT"],
                                      env["rack.url_scheme"])
      env[KEY] = request unless env.frozen?
      outer = Native.enter_request(request)
      before = $! # rubocop:disable Style/SpecialGlobalVars
      begin
        response = @app.call(env)
      ensure
        Native.enter_request(outer)
        # It was left by an exception, or by throw.
        unless response
          status = $!.equal?(before) ? 0 : 500 # rubocop:disable Style/SpecialGlobalVars
          request.done(status, Rack.template(env))
        end
      end
      answer(env, request, response)
    end

    def path(env)
      prefix, path = env.values_at("SCRIPT_NAME", "PATH_INFO")
      prefix.is_a?(String) && path.is_a?(String) && !prefix.empty? ? prefix.b << path.b : path
    end

    # An Array has nothing to close, and servers treat it in a way of its own; a connection that was
    # taken over has no answer.
    def answer(env, request, response)
      status, headers, body = response if response.is_a?(Array)
      status = status.to_i if status.is_a?(String)
      if body.nil? || body.is_a?(Array) || response.size != 3 || env["rack.hijack_io"]
        request.done(status, Rack.template(env))
        response
      else
        [response.first, headers, Body.new(body, request, status, Rack.template(env))]
      end
    end
  end
end
