import { X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import { expect, test } from "vitest";
import { aKey, certificateOf } from "../../../../../scripts/benches/overlay/certificate.ts";

test("a certificate is signed by its own key and valid today", () => {
  const { key, cert } = certificateOf(aKey());
  const read = new X509Certificate(cert);
  expect(read.verify(read.publicKey)).toBe(true);
  expect(read.subject).toBe("CN=bench");
  expect(read.validFromDate.getTime()).toBeLessThan(Date.now());
  expect(read.validToDate.getTime()).toBeGreaterThan(Date.now());
  expect(() => createSecureContext({ key, cert })).not.toThrow();
});

test("each has a key of its own", () => {
  const [one, other] = [certificateOf(aKey()), certificateOf(aKey())];
  expect(one.cert).not.toBe(other.cert);
  expect(() => createSecureContext({ key: one.key, cert: other.cert })).toThrow();
});
