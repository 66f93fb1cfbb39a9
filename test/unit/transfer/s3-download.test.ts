import { expect, test } from "vitest";
import { md5In } from "../../../src/transfer/s3-download.ts";

const MD5 = "900150983cd24fb0d6963f7d28e17f72";

test.each([
  [{ ETag: `"${MD5}"` }, MD5],
  [{ ETag: MD5 }, MD5],
  [{ ETag: `"${MD5}"`, ServerSideEncryption: "AES256" }, MD5],
  [{ ETag: `"${MD5}"`, ServerSideEncryption: "aws:kms" }, undefined],
  [{ ETag: `"${MD5}"`, ServerSideEncryption: "aws:kms:dsse" }, undefined],
  [{ ETag: `"${MD5}"`, SSECustomerAlgorithm: "AES256" }, undefined],
  [{ ETag: `"${MD5}-3"` }, undefined],
  [{ ETag: `W/"${MD5}"` }, undefined],
  [{}, undefined],
] as const)("the MD5 of an object that is %j is %s", (answer, md5) => {
  expect(md5In(answer)).toBe(md5);
});
