import { WHOLE_REPLY_BYTES } from "./reply-parts.ts";
import { z } from "zod";
import { claimsByType } from "./claims.ts";
import { DomainGrant, DomainPeer } from "./domain-items.ts";
import { ClusterDocument, DomainDocument, NodeDocument } from "./documents.ts";
import {
  HANDSHAKE_LIMITS,
  PROTOCOL_VERSION,
  RpcError,
  SESSION_LIMITS,
  SESSION_PATH,
  STREAM_PATH,
  SUBPROTOCOL,
} from "./envelope.ts";
import { errorCodes } from "./error-codes.ts";
import { closeCodes, controlMethods, nodeMethods, type MethodSpec } from "./methods.ts";
import { sectionSchemas } from "./sections.ts";
import { SetupFile } from "./setup.ts";
import { configShadowKeys, containerShadowKeys, upgradeShadowKeys } from "./shadow.ts";
import {
  MAX_STREAMS,
  STREAM_LIMITS,
  STREAM_SUBPROTOCOL,
  streamCloseCodes,
  StreamCommand,
  StreamEnd,
  streamKinds,
  TICKET_HEADER,
} from "./streams.ts";
import { recordByStream } from "./telemetry.ts";

type Json = Readonly<Record<string, unknown>>;

/** The published reference, a file's path below `docs/protocol/` to its text: generated from the schemas, never written by hand. */
export function protocolReference(): ReadonlyMap<string, string> {
  const files = new Map<string, string>();
  const put = (path: string, value: unknown): unknown => files.set(path, `${JSON.stringify(value, undefined, 2)}\n`);
  for (const [name, { kind, params, result }] of allMethods()) {
    put(`schemas/methods/${name}.params.json`, schemaOf(params, `${name} parameters`));
    if (kind === "request") put(`schemas/methods/${name}.result.json`, schemaOf(result, `${name} result`));
  }
  for (const [typ, schema] of Object.entries(claimsByType)) {
    put(`schemas/claims/${typ.replace("+jwt", "")}.json`, schemaOf(schema, `claims of ${typ}`));
  }
  for (const [name, schema] of Object.entries({
    node: NodeDocument,
    cluster: ClusterDocument,
    domain: DomainDocument,
  })) {
    put(`schemas/documents/${name}.json`, schemaOf(schema, `body of the ${name} document`));
  }
  // The document holds them as any object, so that one bad or too new item does not take the others down.
  put("schemas/documents/domain.peer.json", schemaOf(DomainPeer, "one of the peers in the domain document"));
  put("schemas/documents/domain.grant.json", schemaOf(DomainGrant, "one of the grants in the domain document"));
  for (const [name, schema] of Object.entries(sectionSchemas)) {
    put(`schemas/sections/${name}.json`, schemaOf(schema, `the section ${name} of the configuration`));
  }
  for (const [name, schema] of Object.entries(recordByStream)) {
    put(`schemas/telemetry/${name}.json`, schemaOf(schema, `one record of the stream ${name}`));
  }
  for (const [name, schema] of Object.entries(streamKinds)) {
    put(`schemas/streams/${name}.json`, schemaOf(schema, `what a stream of the kind ${name} is opened with`));
  }
  put("schemas/streams/command.json", schemaOf(StreamCommand, "a text frame towards the node"));
  put("schemas/streams/end.json", schemaOf(StreamEnd, "the last text frame of a stream"));
  put("schemas/setup.json", schemaOf(SetupFile, "a file of holdfast setup --file"));
  put("asyncapi.json", asyncApi());
  files.set("README.md", overview());
  return files;
}

function allMethods(): readonly (readonly [string, MethodSpec])[] {
  return [...Object.entries<MethodSpec>(nodeMethods), ...Object.entries<MethodSpec>(controlMethods)];
}

function schemaOf(schema: z.ZodType, title: string): Json {
  const { $schema, ...rest } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  return { $schema, title, ...rest };
}

/** AsyncAPI 3.0 (https://www.asyncapi.com/docs/reference/specification/v3.0.0), from the node's point of view: it sends and receives. */
function asyncApi(): Json {
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
      controlPlane: {
        host: "{host}",
        protocol: "wss",
        pathname: SESSION_PATH,
        variables: { host: { description: "host and port of the control plane" } },
      },
    },
    channels: { session: { address: SESSION_PATH, servers: [{ $ref: "#/servers/controlPlane" }], messages } },
    operations,
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

function overview(): string {
  const rows = (table: Readonly<Record<string, MethodSpec>>): string =>
    Object.entries(table)
      .map(([name, { kind }]) => {
        const result = kind === "request" ? `[result](schemas/methods/${name}.result.json)` : "";
        return `| \`${name}\` | ${kind} | [parameters](schemas/methods/${name}.params.json) | ${result} |`;
      })
      .join("\n");
  const errors = Object.entries(errorCodes)
    .map(([code, { rpc, http, meaning }]) => `| \`${code}\` | ${rpc} | ${http} | ${meaning} |`)
    .join("\n");
  const shadowKeys = [...configShadowKeys, ...containerShadowKeys, ...upgradeShadowKeys]
    .map((row) => `| \`${row[0]}\` | ${row[1]} | ${row[2]} |`)
    .join("\n");
  const closes = Object.entries(closeCodes)
    .map(([name, code]) => `| ${code} | ${name} |`)
    .join("\n");
  const kinds = Object.keys(streamKinds)
    .map((kind) => `| \`${kind}\` | [parameters](schemas/streams/${kind}.json) |`)
    .join("\n");
  const claims = Object.keys(claimsByType)
    .map((typ) => `| \`${typ}\` | [claims](schemas/claims/${typ.replace("+jwt", "")}.json) |`)
    .join("\n");
  return `# Protocol reference

Generated from the schemas in \`src/protocol/\` by \`npm run reference\`; \`npm run reference:check\` fails when it is out of date.
The whole as AsyncAPI 3: [asyncapi.json](asyncapi.json).

## Node → control plane

| Method | Kind | Parameters | Result |
| --- | --- | --- | --- |
${rows(nodeMethods)}

## Control plane → node

| Method | Kind | Parameters | Result |
| --- | --- | --- | --- |
${rows(controlMethods)}

No event takes input yet: a node passes over \`trigger.input\`.

An answer of more than ${WHOLE_REPLY_BYTES} bytes, or of more levels than a message has, comes to who watches a trigger in parts: its JSON text piece by piece in
\`trigger.progress\` of the kind \`json\`, each \`data\` one object \`{"replyPart": text}\`, and then the result \`{"replyBytes": N}\`, the bytes of all pieces together.

## Streams

\`stream.open\` brings an order, signed over the SHA-256 (\`th\`) of the one-time ticket beside it. The node opens what is asked for, answers, and dials
\`${STREAM_PATH}\` (subprotocol \`${STREAM_SUBPROTOCOL}\`) with the ticket in the header \`${TICKET_HEADER}\`. Binary frames are the stream's bytes, sent in pieces of
at most ${STREAM_LIMITS.sentFrameBytes} bytes and taken up to ${STREAM_LIMITS.takenFrameBytes}; a text frame is one JSON object: a [command](schemas/streams/command.json) towards the node, and as
the last from it how it [ended](schemas/streams/end.json). Then the socket is closed with ${streamCloseCodes.ended}, or with ${streamCloseCodes.failed} and the error's code as the reason; ${streamCloseCodes.protocol}
says that a text frame was no command. A node has at most ${MAX_STREAMS} streams; one ends with the session it was opened in, and after an hour without a byte.

| Kind | Opened with |
| --- | --- |
${kinds}

## Signed statements

| typ | Claims |
| --- | --- |
${claims}

## The file that sets a machine up

What \`holdfast setup --file\` takes: [setup.json](schemas/setup.json). Every member is optional.

## Shadow keys of the configuration

What a node reports besides the platform's own keys. A section may also report keys that the platform knows, such as \`cluster.master\`.

| Key | Type | Meaning |
| --- | --- | --- |
${shadowKeys}

## Errors

The same code on every face: \`data.code\` in JSON-RPC, \`code\` in an HTTP body.

| Code | JSON-RPC | HTTP | Meaning |
| --- | --- | --- | --- |
${errors}

## Close codes

| Code | Meaning |
| --- | --- |
${closes}
`;
}
