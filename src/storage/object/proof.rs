//! The proof that a store creates an object only if there is none of that name.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;

use super::ObjectFiles;
use crate::error::{Error, Result};
use crate::table::Location;

/// The clients that passed. A weak pointer keeps the address from being used again, not the client.
static PROVED: Mutex<Vec<Weak<dyn ObjectStore>>> = Mutex::new(Vec::new());

impl ObjectFiles {
    /// Proves, once for each client, that this store refuses to create what is there: it is asked to create a small object
    /// in the folder twice.
    ///
    /// # Errors
    /// [`Error::Location`] when the second create succeeds, [`Error::Storage`] when the store doesn't know such a request.
    pub(crate) async fn prove_create(&self, folder: &Location) -> Result<()> {
        if is_proved(&self.store) {
            return Ok(());
        }
        let probe = folder.child(&format!("create-if-absent-{}.probe", uuid::Uuid::new_v4()));
        if let Err(error) = self.create(&probe, Bytes::from_static(b"first")).await {
            // It may be there although its answer was lost.
            if !error.is_refusal() {
                self.remove_own_probe(&probe).await;
            }
            return Err(error);
        }
        let created_again = self.create(&probe, Bytes::from_static(b"second")).await;
        self.remove_own_probe(&probe).await;
        if created_again? {
            return Err(Error::Location {
                location: folder.to_string(),
                why: format!(
                    "the store {} silently overwrites an object that it was asked to create only if there is none, so two \
                     commits at once would lose one of them. Nothing was committed. Use a catalog for this table, or a \
                     store that knows conditional writes",
                    self.store
                ),
            });
        }
        PROVED.lock().push(Arc::downgrade(&self.store));
        Ok(())
    }

    /// Deletes the probe, whose name nobody else knows. The only delete in `storage/`.
    async fn remove_own_probe(&self, probe: &Location) {
        let removed = match Self::key(probe) {
            Ok(key) => {
                self.store.delete(&key).await.map_err(|error| Error::store("deleting", probe.to_string(), error))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, "a probe was left behind; remove_orphan_files collects it");
        }
    }
}

fn is_proved(store: &Arc<dyn ObjectStore>) -> bool {
    let mut proved = PROVED.lock();
    proved.retain(|known| known.strong_count() > 0);
    // Addresses alone: the same client may come with different tables of methods.
    proved.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(store)))
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::ops::Range;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use futures::TryStreamExt;
    use futures::stream::BoxStream;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::*;

    use super::*;

    /// A store that may not know what `PutMode::Create` means.
    #[derive(Debug, Default)]
    struct Server {
        objects: InMemory,
        overwrites: bool,
        writes: AtomicUsize,
    }

    impl fmt::Display for Server {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("AmazonS3(careless)")
        }
    }

    #[async_trait]
    impl ObjectStore for Server {
        async fn put_opts(
            &self,
            key: &Path,
            payload: PutPayload,
            mut options: PutOptions,
        ) -> object_store::Result<PutResult> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            if self.overwrites {
                options.mode = PutMode::Overwrite;
            }
            self.objects.put_opts(key, payload, options).await
        }

        async fn put_multipart_opts(
            &self,
            key: &Path,
            options: PutMultipartOptions,
        ) -> object_store::Result<Box<dyn MultipartUpload>> {
            self.objects.put_multipart_opts(key, options).await
        }

        async fn get_opts(&self, key: &Path, options: GetOptions) -> object_store::Result<GetResult> {
            self.objects.get_opts(key, options).await
        }

        async fn get_ranges(&self, key: &Path, ranges: &[Range<u64>]) -> object_store::Result<Vec<Bytes>> {
            self.objects.get_ranges(key, ranges).await
        }

        fn delete_stream(
            &self,
            keys: BoxStream<'static, object_store::Result<Path>>,
        ) -> BoxStream<'static, object_store::Result<Path>> {
            self.objects.delete_stream(keys)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
            self.objects.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
            self.objects.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
            self.objects.copy_opts(from, to, options).await
        }
    }

    async fn is_empty(server: &Server) -> bool {
        server.objects.list(None).try_next().await.unwrap().is_none()
    }

    #[tokio::test]
    async fn a_store_is_asked_once_and_nothing_is_left() {
        let server = Arc::new(Server::default());
        let folder = Location::parse("s3://careless/t/metadata").unwrap();
        for _ in 0..2 {
            ObjectFiles::new(Arc::clone(&server) as _).prove_create(&folder).await.unwrap();
            assert_eq!(server.writes.load(Ordering::Relaxed), 2);
        }
        assert!(is_empty(&server).await);
    }

    #[tokio::test]
    async fn a_store_that_overwrites_is_refused_by_name_every_time() {
        let server = Arc::new(Server { overwrites: true, ..Default::default() });
        let folder = Location::parse("s3://careless/t/metadata").unwrap();
        for _ in 0..2 {
            let error = ObjectFiles::new(Arc::clone(&server) as _).prove_create(&folder).await.unwrap_err().to_string();
            assert!(error.contains("AmazonS3(careless) silently overwrites"), "{error}");
            assert!(is_empty(&server).await);
        }
    }
}
