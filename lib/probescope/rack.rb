# frozen_string_literal: true

require_relative "../probescope"
require_relative "route_templates"

module Probescope
  # Rack middleware that reports requests to tracers: `use Probescope::Rack`, as far outside as
  # possible. The Railtie adds it in Rails. While no tracer listens, it calls one C function and
  # then the application.
  #
  # The code of the middleware itself raises nothing: it checks the type of each value before it
  # uses the value as a String or an Array. It has no rescue, because a rescue could swallow an
  # exception that another thread sends (Timeout, Thread#raise).
  class Rack
    # KEY in the env marks a request that is reported already. Under ROUTE an application may name
    # its route.
    KEY = "probescope.request"
    ROUTE = "probescope.route"

    # Stands in for Native where there are no probes.
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

    # The innermost middleware. Saves the route template before an application that renders errors
    # overwrites it (`config.exceptions_app = routes` of Rails).
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

    # Wraps the body of a response. The request lasts until the body is closed. It is the current
    # request while the server reads the body.
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

      # Forwards each, call, to_path, to_ary and any other method that the body has.
      def method_missing(name, ...)
        within { @body.public_send(name, ...) }
      ensure
        # to_ary closes the body. A body with call has written everything when call returns, and
        # Falcon does not close it.
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
        # An exception or a throw left the application.
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

    # An Array needs no close, and servers treat an Array in a special way. A hijacked connection
    # has no response.
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
