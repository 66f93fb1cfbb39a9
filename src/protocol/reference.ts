import { WHOLE_REPLY_BYTES } from "./channel/reply-parts.ts";
import { z } from "zod";
import { asyncApi } from "./channel/asyncapi.ts";
import { claimsByType } from "./documents/claims.ts";
import { DomainGrant, DomainPeer } from "./sections/gateway/domain-items.ts";
import { ClusterDocument, DomainDocument, NodeDocument } from "./documents/documents.ts";
import { ACTIVATION_PATH, REGISTER_PATH, STREAM_PATH, TOKEN_PATH } from "./channel/envelope.ts";
import { errorCodes } from "./values/error-codes.ts";
import { closeCodes, controlMethods, nodeMethods, type MethodSpec } from "./channel/methods.ts";
import { sectionSchemas } from "./sections/sections.ts";
import { SetupFile } from "./local/setup.ts";
import { configShadowKeys, containerShadowKeys, upgradeShadowKeys } from "./values/shadow.ts";
import {
  MAX_STREAMS,
  STREAM_LIMITS,
  STREAM_SUBPROTOCOL,
  streamCloseCodes,
  StreamCommand,
  StreamEnd,
  streamKinds,
  TICKET_HEADER,
} from "./channel/streams.ts";
import { ActivationAnswer, ActivationBody, TokenAnswer, TokenBody } from "./channel/activation.ts";
import { HttpRefusal, RegistrationAnswer, RegistrationBody } from "./channel/registration.ts";
import { recordByStream } from "./documents/telemetry.ts";
import { ContainerCommand } from "./triggers/bodies.ts";
import { triggerEvents } from "./values/trigger-events.ts";
import { ContainerCommandAnswer } from "./triggers/results.ts";
import { triggerSchemas } from "./triggers/schemas.ts";

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
  put("schemas/registration/body.json", schemaOf(RegistrationBody, `body of POST ${REGISTER_PATH}`));
  put("schemas/registration/answer.json", schemaOf(RegistrationAnswer, `answer to POST ${REGISTER_PATH}`));
  put("schemas/registration/activation-body.json", schemaOf(ActivationBody, `body of POST ${ACTIVATION_PATH}`));
  put("schemas/registration/activation-answer.json", schemaOf(ActivationAnswer, `answer to POST ${ACTIVATION_PATH}`));
  put("schemas/registration/token-body.json", schemaOf(TokenBody, `body of POST ${TOKEN_PATH}`));
  put("schemas/registration/token-answer.json", schemaOf(TokenAnswer, `answer to POST ${TOKEN_PATH}`));
  put("schemas/http-refusal.json", schemaOf(HttpRefusal, "an HTTP answer that is an error"));
  for (const event of triggerEvents) {
    put(`schemas/triggers/${event}.body.json`, schemaOf(triggerSchemas[event].body, `body of ${event}`));
    put(`schemas/triggers/${event}.result.json`, schemaOf(triggerSchemas[event].result, `result of ${event}`));
  }
  put("schemas/triggers/container.body.json", schemaOf(ContainerCommand, "body of the event named as a container is"));
  put("schemas/triggers/container.result.json", schemaOf(ContainerCommandAnswer, "result of that event"));
  put("schemas/setup.json", schemaOf(SetupFile, "a file of holdfast setup --file"));
  put("asyncapi.json", asyncApi());
  files.set("reference.md", overview());
  return files;
}

function allMethods(): readonly (readonly [string, MethodSpec])[] {
  return [...Object.entries<MethodSpec>(nodeMethods), ...Object.entries<MethodSpec>(controlMethods)];
}

function schemaOf(schema: z.ZodType, title: string): Json {
  const { $schema, ...rest } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  return { $schema, title, ...rest };
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
  const events = triggerEvents
    .map(
      (event) =>
        `| \`${event}\` | [body](schemas/triggers/${event}.body.json) | [result](schemas/triggers/${event}.result.json) |`,
    )
    .join("\n");
  const documents = [
    ...["node", "cluster", "domain", "domain.peer", "domain.grant"].map(
      (name) => `| \`${name}\` | [schema](schemas/documents/${name}.json) |`,
    ),
    ...Object.keys(sectionSchemas).map((name) => `| section \`${name}\` | [schema](schemas/sections/${name}.json) |`),
  ].join("\n");
  const streams = Object.keys(recordByStream)
    .map((name) => `| \`${name}\` | [record](schemas/telemetry/${name}.json) |`)
    .join("\n");
  return `# Protocol reference

Generated from the schemas in \`src/protocol/\` by \`npm run reference\`; \`npm run reference:check\` fails when it is out of date.
[README.md](README.md) says how these are used and [examples.md](examples.md) shows them as bytes. All of them as AsyncAPI 3:
[asyncapi.json](asyncapi.json).

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

## Trigger events

The body of a \`trigger.run\` and its result, for each event. An event that gives output answers
[all of it](schemas/triggers/tg-ping.result.json) to a caller that waits, and else how it ended, after the \`trigger.progress\` with the output.

| Event | Body | Result |
| --- | --- | --- |
${events}
| a container's name | [body](schemas/triggers/container.body.json) | [result](schemas/triggers/container.result.json) |

## Registration

| What | Schema |
| --- | --- |
| body of \`POST ${REGISTER_PATH}\` | [body](schemas/registration/body.json) |
| its answer | [answer](schemas/registration/answer.json) |
| body of \`POST ${ACTIVATION_PATH}\` | [body](schemas/registration/activation-body.json) |
| its answer | [answer](schemas/registration/activation-answer.json) |
| body of \`POST ${TOKEN_PATH}\` | [body](schemas/registration/token-body.json) |
| its answer | [answer](schemas/registration/token-answer.json) |
| an error of any address below \`/agent/v1/\` | [refusal](schemas/http-refusal.json) |

## Documents and sections

| Body of | Schema |
| --- | --- |
${documents}

## Telemetry

| Stream of \`telemetry.push\` | One record |
| --- | --- |
${streams}

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
