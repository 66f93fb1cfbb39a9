// What is used of the SDK for S3. It is large, and so loaded with `import()` by whoever transfers an object; the build packs it.
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
