import { z } from "zod";
import { ORGANIZATION, tgrn } from "../access/policies/permissions.ts";
import { Violations } from "../http/problem.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, refusals, Seconds } from "../http/shapes.ts";
import type { CertificateParts } from "./pem.ts";
import { CertificateName, WARNINGS, type CertificateInfo } from "./records.ts";
import type { Certificates } from "./service.ts";

const tag = "Certificates";
const path = "/v2/certificates";
const Pem = z.string().max(262_144);
const Params = z.object({ fqdn: CertificateName });
/** An empty field counts as absent; the body of a client may have read-only fields as well. */
const Body = z
  .object({
    fqdn: z
      .union([CertificateName, z.literal("")])
      .optional()
      .meta({ description: "Default: the first DNS name of the certificate" }),
    certificateBody: Pem.optional(),
    certificateChain: Pem.nullable().optional().meta({ description: "Its issuers" }),
    privateKey: Pem.optional(),
    chain: Pem.optional().meta({ description: "Instead of `certificateBody` and `certificateChain`" }),
    private_key: Pem.optional().meta({ description: "Instead of `privateKey`" }),
  })
  .meta({
    id: "CertificateWrite",
    description: "Certificate, issuers and private key in PEM; none of them is ever shown",
  });
const PublicCertificate = z
  .object({
    fqdn: z.string(),
    expiresAt: Seconds,
    warning: z.enum(WARNINGS),
    orgId: z.string(),
  })
  .meta({ id: "Certificate" });

const onCertificate = ({ fqdn }: z.infer<typeof Params>): string => tgrn.certificate(fqdn);

export interface CertificateRouteDeps {
  readonly certificates: Certificates;
  /** UUID of the organization. */
  readonly org: string;
}

/** Routes of the organization's certificates, to which `gateway.cert` and `apigw.cert` refer by name. */
export function certificateRoutes({ certificates, org }: CertificateRouteDeps): readonly Route[] {
  const shown = (info: CertificateInfo): z.infer<typeof PublicCertificate> => ({ ...info, orgId: org });
  const one = { 200: { description: "The certificate, without its contents", schema: PublicCertificate } } as const;
  return [
    route({
      method: "GET",
      path,
      operationId: "listCertificates",
      summary: "List certificates, without their contents",
      tag,
      access: { to: "kind", permissions: ["certificates::read"], kind: tgrn.certificate("") },
      answers: {
        200: { description: "The certificates the caller may read, by name", schema: z.array(PublicCertificate) },
        ...refusals,
      },
      handle: async ({ caller }) => {
        const may = await caller.among(["certificates::read"]);
        const listed = (await certificates.all()).filter(({ fqdn }) => may(tgrn.certificate(fqdn)));
        return Response.json(listed.map(shown));
      },
    }),
    route({
      method: "POST",
      path,
      operationId: "createCertificate",
      summary: "Upload a certificate, or replace the one with this name",
      tag,
      access: { to: "resource", permissions: ["certificates::modify"], resource: () => ORGANIZATION },
      body: { schema: Body },
      answers: { ...one, ...refusals, ...badBody },
      handle: async ({ body, caller }) => Response.json(shown(await certificates.put(partsOf(body), caller.name))),
    }),
    route({
      method: "PUT",
      path: `${path}/{fqdn}`,
      operationId: "replaceCertificate",
      summary: "Replace a certificate",
      tag,
      access: { to: "resource", permissions: ["certificates::modify"], resource: onCertificate },
      params: Params,
      body: { schema: Body },
      answers: { ...one, ...refusals, ...notFound, ...badBody },
      handle: async ({ params: { fqdn }, body, caller }) => {
        const { fqdn: given = fqdn, ...parts } = partsOf(body);
        if (given !== fqdn) throw new Violations([`fqdn: must be ${fqdn}; a certificate cannot be renamed`]);
        return Response.json(shown(await certificates.put({ ...parts, fqdn }, caller.name, { isKnown: true })));
      },
    }),
    route({
      method: "DELETE",
      path: `${path}/{fqdn}`,
      operationId: "deleteCertificate",
      summary: "Remove a certificate and its key",
      tag,
      access: { to: "resource", permissions: ["certificates::modify"], resource: onCertificate },
      params: Params,
      answers: { 200: { description: "Removed", schema: Empty }, ...refusals, ...notFound },
      handle: async ({ params: { fqdn }, caller }) => {
        await certificates.remove(fqdn, caller.name);
        return Response.json({});
      },
    }),
  ];
}

/** Returns the parts in either spelling. @throws {Violations} if the certificate or the key is missing */
function partsOf(body: z.infer<typeof Body>): CertificateParts & { readonly fqdn: string | undefined } {
  const { fqdn, certificateBody, certificateChain, privateKey, chain, private_key: otherKey } = body;
  const certificates = [
    { field: "certificateBody", text: certificateBody },
    { field: "certificateChain", text: certificateChain },
    { field: "chain", text: chain },
  ].flatMap(({ field, text }) => (isBlank(text) ? [] : [{ field, text }]));
  const keys = [
    { field: "privateKey", text: privateKey },
    { field: "private_key", text: otherKey },
  ].flatMap(({ field, text }) => (isBlank(text) ? [] : [{ field, text }]));
  const [key] = keys;
  const missing = [
    ...(isBlank(certificateBody) && isBlank(chain) ? ["certificateBody: is required"] : []),
    ...(key === undefined ? ["privateKey: is required"] : []),
  ];
  if (key === undefined || missing.length > 0) throw new Violations(missing);
  return { certificates, privateKey: key, fqdn: isBlank(fqdn) ? undefined : fqdn };
}

const isBlank = (text: string | null | undefined): text is null | undefined | "" =>
  text === undefined || text === null || text === "";
