// The used part of the S3 SDK. It is large, so it is loaded with `import()` by the transfer of an object; the build
// bundles it.
export {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  GetObjectCommand,
  GetBucketLocationCommand,
  HeadObjectCommand,
  ListPartsCommand,
  PutObjectCommand,
  S3Client,
  UploadPartCommand,
} from "@aws-sdk/client-s3";
export { fromInstanceMetadata } from "@smithy/credential-provider-imds";
