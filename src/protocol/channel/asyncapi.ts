import { z } from "zod";
import {
  ACTIVATION_PATH,
  DOCUMENT_PATH,
  HANDSHAKE_LIMITS,
  PROTOCOL_VERSION,
  REGISTER_PATH,
  RpcError,
  SESSION_LIMITS,
  SESSION_PATH,
  STREAM_PATH,
  SUBPROTOCOL,
  TOKEN_PATH,
} from "./envelope.ts";
import { KeysEnvelopes } from "./keys-chain.ts";
import { controlMethods, nodeMethods, type MethodSpec } from "./methods.ts";
import { ActivationAnswer, ActivationBody, TokenAnswer, TokenBody } from "./activation.ts";
import { HttpRefusal, RegistrationAnswer, RegistrationBody } from "./registration.ts";
import { StreamCommand, StreamEnd, STREAM_SUBPROTOCOL, TICKET_HEADER } from "./streams.ts";
import { Base64Url32, Jws } from "../values/values.ts";

type Json = Readonly<Record<string, unknown>>;

/** AsyncAPI 3.0 (https://www.asyncapi.com/docs/reference/specification/v3.0.0), from the node's point of view: it sends and receives. */
export function asyncApi(): Json {
  const messages: Record<string, unknown> = {};
  const operations: Record<string, unknown> = {};
  const ref = (name: string): Json => ({ $ref: `#/channels/session/messages/${name}` });
  const add = (action: "send" | "receive", table: Readonly<Record<string, MethodSpec>>): void => {
    for (const [method, spec] of Object.entries(table)) {
      const isRequest = spec.kind === "request";
      messages[method] = messageOf(method, callPayload(method, spec));
      if (isRequest) messages[`${method}.reply`] = messageOf(`${method} reply`, replyPayload(spec));
      operations[method] = {
        action,
        channel: { $ref: "#/channels/session" },
        messages: [ref(method)],
        ...(isRequest
          ? { reply: { channel: { $ref: "#/channels/session" }, messages: [ref(`${method}.reply`)] } }
          : {}),
      };
    }
  };
  add("send", nodeMethods);
  add("receive", controlMethods);
  return {
    asyncapi: "3.0.0",
    info: {
      title: "Holdfast control channel",
      version: String(PROTOCOL_VERSION),
      description: `JSON-RPC 2.0 over one WebSocket, subprotocol ${SUBPROTOCOL}; one message a text frame, at most ${SESSION_LIMITS.maxBytes} bytes and ${SESSION_LIMITS.maxDepth} levels (${HANDSHAKE_LIMITS.maxBytes} bytes before hello succeeds).`,
      license: { name: "Apache-2.0" },
    },
    defaultContentType: "application/json",
    servers: {
      controlPlane: server("wss", "WebSockets"),
      controlPlaneHttp: server("https", "registration, documents and speed tests"),
    },
    channels: { session: { address: SESSION_PATH, servers: onSockets, messages }, ...otherChannels() },
    operations: { ...operations, ...otherOperations() },
  };
}

const onSockets = [{ $ref: "#/servers/controlPlane" }];
const onHttp = [{ $ref: "#/servers/controlPlaneHttp" }];

function server(protocol: string, description: string): Json {
  return {
    host: "{host}",
    protocol,
    description,
    variables: { host: { description: "host and port of the control plane" } },
  };
}

/** The node's channels besides the session, each over a separate connection. */
function otherChannels(): Json {
  const ticket = {
    type: "object",
    required: [TICKET_HEADER],
    properties: { [TICKET_HEADER]: withoutDialect(Base64Url32) },
  };
  const bytes = { type: "string", format: "binary" };
  return {
    register: {
      address: REGISTER_PATH,
      servers: onHttp,
      messages: {
        body: messageOf("registration", withoutDialect(RegistrationBody)),
        answer: messageOf("registration's answer", withoutDialect(RegistrationAnswer)),
        refusal: messageOf("refusal", withoutDialect(HttpRefusal)),
      },
    },
    activation: {
      address: ACTIVATION_PATH,
      servers: onHttp,
      messages: {
        body: messageOf("question for a code or the license", withoutDialect(ActivationBody)),
        answer: messageOf("code or license", withoutDialect(ActivationAnswer)),
        refusal: messageOf("refusal", withoutDialect(HttpRefusal)),
      },
    },
    token: {
      address: TOKEN_PATH,
      servers: onHttp,
      messages: {
        body: messageOf("use of an agent token", withoutDialect(TokenBody)),
        answer: messageOf("license of a token", withoutDialect(TokenAnswer)),
        refusal: messageOf("refusal", withoutDialect(HttpRefusal)),
      },
    },
    document: {
      address: DOCUMENT_PATH,
      servers: onHttp,
      messages: {
        ticket: { title: "fetch of a document", headers: ticket, payload: { type: "null" } },
        document: { title: "signed document", contentType: "application/jose", payload: withoutDialect(Jws) },
        keys: messageOf("versions of the keys document", withoutDialect(KeysEnvelopes)),
        refusal: messageOf("refusal", withoutDialect(HttpRefusal)),
      },
    },
    stream: {
      address: STREAM_PATH,
      servers: onSockets,
      description: `Subprotocol ${STREAM_SUBPROTOCOL}. The upgrade carries the ticket of stream.open in the header ${TICKET_HEADER}.`,
      messages: {
        bytes: { title: "binary frame", contentType: "application/octet-stream", payload: bytes },
        command: messageOf("text frame towards the node", withoutDialect(StreamCommand)),
        end: messageOf("last text frame of the node", withoutDialect(StreamEnd)),
      },
    },
    speedTest: {
      address: null,
      servers: onHttp,
      description:
        "The address is settings.speedTestUrl of the node document: GET with ?bytes=N answers N bytes, POST takes bytes.",
      messages: { bytes: { title: "bytes", contentType: "application/octet-stream", payload: bytes } },
    },
  };
}

function otherOperations(): Json {
  const at = (channel: string, ...names: readonly string[]): Json => ({
    channel: { $ref: `#/channels/${channel}` },
    messages: names.map((name) => ({ $ref: `#/channels/${channel}/messages/${name}` })),
  });
  const http = (method: string): Json => ({ bindings: { http: { method } } });
  return {
    register: {
      action: "send",
      ...http("POST"),
      ...at("register", "body"),
      reply: at("register", "answer", "refusal"),
    },
    activate: {
      action: "send",
      ...http("POST"),
      ...at("activation", "body"),
      reply: at("activation", "answer", "refusal"),
    },
    useToken: {
      action: "send",
      ...http("POST"),
      ...at("token", "body"),
      reply: at("token", "answer", "refusal"),
    },
    fetchDocument: {
      action: "send",
      ...http("GET"),
      ...at("document", "ticket"),
      reply: at("document", "document", "keys", "refusal"),
    },
    writeStream: { action: "send", ...at("stream", "bytes", "end") },
    readStream: { action: "receive", ...at("stream", "bytes", "command") },
    download: { action: "receive", ...http("GET"), ...at("speedTest", "bytes") },
    upload: { action: "send", ...http("POST"), ...at("speedTest", "bytes") },
  };
}

function messageOf(title: string, payload: Json): Json {
  return { title, contentType: "application/json", payload };
}

function callPayload(method: string, spec: MethodSpec): Json {
  const isRequest = spec.kind === "request";
  return {
    type: "object",
    required: ["jsonrpc", ...(isRequest ? ["id"] : []), "method", "params"],
    properties: {
      jsonrpc: { const: "2.0" },
      ...(isRequest ? { id: { type: "integer", minimum: 1 } } : {}),
      method: { const: method },
      params: withoutDialect(spec.params),
    },
  };
}

function replyPayload(spec: MethodSpec): Json {
  const id = { type: "integer", minimum: 1 };
  const common = { jsonrpc: { const: "2.0" }, id };
  return {
    oneOf: [
      {
        type: "object",
        required: ["jsonrpc", "id", "result"],
        properties: { ...common, result: withoutDialect(spec.result) },
      },
      {
        type: "object",
        required: ["jsonrpc", "id", "error"],
        properties: { ...common, error: withoutDialect(RpcError) },
      },
    ],
  };
}

function withoutDialect(schema: z.ZodType): Json {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  return rest;
}
