//! The rights that the store's user needs, exactly as the guide lists them.

use semel_core::machine::Unchanged;
use semel_core::store::{Backend as _, Change, Count, Error, Filter, Kind, Store as _};
use semel_redis::{Backend, Store};
use semel_test_support::{RedisReply, RedisServer, ScratchDir};
use semel_testkit::records::{claimed, finished, id, is_done};

const GUIDE: &str = include_str!("../../../../docs/guide/src/redis.md");

/// The rights in the guide's `ACL SETUSER`, after the password.
fn documented() -> Vec<String> {
    let (_, rest) = GUIDE.split_once("ACL SETUSER semel on >PASSWORD").expect("the guide has it");
    let (rights, _) = rest.split_once("```").expect("it ends");
    rights.split_whitespace().map(str::to_owned).collect()
}

struct User {
    server: RedisServer,
    url: String,
    _folder: ScratchDir,
}

impl User {
    fn new(name: &str) -> Self {
        let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), name);
        let server = RedisServer::start(folder.join("server"), &[]);
        let password = folder.write("password", "hunter2\n");
        let url = format!("redis://semel@{}?password=file:{}", server.address(), password.display());
        Self { server, url, _folder: folder }
    }

    /// Sets exactly these rights. The server's scripts are flushed, so that they have to be sent again.
    fn may(&self, rights: &[String]) {
        let mut command = ["ACL", "SETUSER", "semel", "reset", "on", ">hunter2"].map(str::to_owned).to_vec();
        command.extend_from_slice(rights);
        assert_eq!(self.server.client().ask(&command), RedisReply::Bytes(b"OK".to_vec()), "{rights:?}");
        self.server.ask("SCRIPT FLUSH");
    }

    /// Everything that a gateway and the doctor do with a store. A missing right is an error, or the name of
    /// a hazard.
    async fn use_all(&self) -> Result<(), String> {
        let describe = |error: Error| format!("{:?}: {error}", error.kind());
        let store = Store::open(&self.url).await.map_err(describe)?;
        let claim = claimed(1);
        let done = finished(&claim, "paid");
        assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.map_err(describe)?));
        assert!(is_done(
            &store.write(id(1), Change::Replace(Unchanged::of(&claim), &done)).await.map_err(describe)?
        ));
        assert_eq!(
            store
                .page(&Filter { newest_first: true, ..Filter::default() }, None, 9)
                .await
                .map_err(describe)?
                .items
                .len(),
            1
        );
        store.due(None, 9).await.map_err(describe)?;
        store.tally(None, None, 9).await.map_err(describe)?;
        assert_eq!(store.count(Count::Records, 9).await.map_err(describe)?.count, 1);
        let _ = store.set("name", None, Some(b"value")).await.map_err(describe)?;
        let _ = store.set("name", Some(b"value"), None).await.map_err(describe)?;
        store.settings().await.map_err(describe)?;
        assert!(is_done(&store.write(id(1), Change::Remove(Unchanged::of(&done))).await.map_err(describe)?));
        let hazards = store.hazards().await.map_err(describe)?;
        store.close().await;
        let inspection =
            Backend.inspect(self.url.split_once(':').expect("a URL").1).await.map_err(describe)?;
        inspection.census().await.map_err(describe)?;
        match hazards.first() {
            None => Ok(()),
            Some(hazard) => Err(format!("{}: {}", hazard.code, hazard.what)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_are_sufficient_and_each_is_needed() {
    if !RedisServer::is_installed() {
        return;
    }
    let user = User::new("documented");
    let documented = documented();
    user.may(&documented);
    user.use_all().await.expect("these rights will do");
    // An idle connection is pinged only after ten seconds.
    for (at, right) in documented.iter().enumerate().filter(|(_, right)| *right != "+ping") {
        let mut fewer = documented.clone();
        fewer.remove(at);
        user.may(&fewer);
        let missing = user.use_all().await.expect_err(right);
        assert!(missing.starts_with("Unfit") || missing.starts_with("redis-"), "{right}: {missing}");
        assert_eq!(user.server.ask("KEYS *probe*"), RedisReply::Array(Vec::new()), "{right}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_script_rights_are_named_before_the_first_write() {
    if !RedisServer::is_installed() {
        return;
    }
    let user = User::new("missing");
    let missing = ["+zadd", "+persist", "+hset"];
    let fewer: Vec<_> = documented().into_iter().filter(|right| !missing.contains(&right.as_str())).collect();
    user.may(&fewer);
    let refused = Store::open(&user.url).await.expect_err("it lacks rights");
    assert_eq!(refused.kind(), Kind::Unfit, "{refused}");
    assert!(refused.to_string().contains("+persist +zadd +hset; nothing was written"), "{refused}");
    assert_eq!(user.server.ask("DBSIZE").number(), 0, "nothing was left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_right_is_not_reported_as_ambiguous() {
    if !RedisServer::is_installed() {
        return;
    }
    let user = User::new("taken");
    let documented = documented();
    user.may(&documented);
    let store = Store::open(&user.url).await.expect("it opens");
    for (number, right, kind) in [
        (1, "-setrange", Kind::Unfit),
        (2, "-zadd", Kind::Unfit),
        (3, "-set", Kind::Unfit),
        // The record exists by then, so the error must not claim that it does not.
        (4, "-hincrby", Kind::Ambiguous),
    ] {
        user.server.ask(&format!("ACL SETUSER semel {right}"));
        let refused = store.write(id(number), Change::Insert(&claimed(number))).await.expect_err("forbidden");
        assert_eq!(refused.kind(), kind, "{right}: {refused}");
        assert!(
            refused.to_string().contains(&format!("lacks the right +{}", &right[1..])),
            "{right}: {refused}"
        );
        user.server.ask(&format!("ACL SETUSER semel +{}", &right[1..]));
        let is_there = store.get(id(number)).await.expect("an answer").record().is_some();
        assert_eq!(is_there, kind == Kind::Ambiguous, "{right}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_needs_two_more_rights() {
    if !RedisServer::is_installed() {
        return;
    }
    let user = User::new("doctor");
    let mut rights = documented();
    rights.extend(["+scan", "+zscore"].map(str::to_owned));
    user.may(&rights);
    let store = Store::open(&user.url).await.expect("it opens");
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    let address = user.url.split_once(':').expect("a URL").1;
    let inspection = Backend.inspect(address).await.expect("it may be looked at");
    assert_eq!(inspection.verify().await.expect("looked"), Vec::<String>::new());
    for right in ["scan", "zscore"] {
        user.server.ask(&format!("ACL SETUSER semel -{right}"));
        let refused = inspection.verify().await.expect_err(right);
        assert!(refused.to_string().to_lowercase().contains(right), "{refused}");
        user.server.ask(&format!("ACL SETUSER semel +{right}"));
    }
}
